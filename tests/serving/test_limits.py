"""Real servers under load and orders: tokens, concurrency, clients that go away, and the end in good order."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import grpc
import httpx
import pytest
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb

from lingraft.errors import ServingError
from lingraft.serving.client import RunningServer, run_server
from lingraft.serving.settings import TOKEN_VARIABLE, read_token
from tests.serving.asking import JSON, body, infer, outputs_of
from tests.serving.rpc import asked, stub
from tests.serving.shared import TOKEN, SharedServer

pytestmark = pytest.mark.integration
HELD = ("--no-detect", "--wait-ms=3000", "--requests=4", "--waiting-texts=8", "--body-s=2", "--batch-texts=64")
"""A request waits three seconds for others, so that the test can do something meanwhile."""


@contextmanager
def client_of(server: RunningServer | SharedServer, **headers: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False, headers=headers) as client:
        yield client


@contextmanager
def held(bundle: Path) -> Iterator[tuple[RunningServer, httpx.Client]]:
    with run_server([bundle], settings=HELD) as server, client_of(server) as client:
        yield server, client


def until_waiting(client: httpx.Client, texts: int) -> None:
    while f'lingraft_queue_texts{{task="topic"}} {texts}.0' not in client.get("/metrics").text:
        time.sleep(0.02)


def test_limits_hold_clients_may_leave_and_what_was_accepted_is_finished(bundle: Path) -> None:
    with held(bundle) as (server, client), ThreadPoolExecutor(8) as threads:
        # Too many texts for the queue, then too many requests.
        waiting = threads.submit(client.post, infer("topic"), json=body(["kilo"] * 6))
        until_waiting(client, 6)
        refused = client.post(infer("topic"), json=body(["kilo"] * 3))
        assert (refused.status_code, "6 texts wait already" in refused.text) == (429, True)
        assert int(refused.headers["retry-after"]) >= 1
        with pytest.raises(grpc.RpcError) as full, stub(server) as service:
            service.ModelInfer(asked("topic", text=["kilo"] * 3, language=["de"]))
        assert full.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert ("retry-after", "1") in [tuple(pair) for pair in full.value.trailing_metadata()]
        assert len(outputs_of(waiting.result())["label"]) == 6

        # A client that goes away takes its texts with it.
        with pytest.raises(httpx.ReadTimeout):
            client.post(infer("topic"), json=body(["kilo"] * 5), timeout=0.5)
        until_waiting(client, 0)

        slow = [threads.submit(client.post, infer("topic"), json=body()) for _ in range(4)]
        until_waiting(client, 4)
        refused = client.post(infer("topic"), json=body())
        assert (refused.status_code, "4 requests are being answered" in refused.text) == (429, True)
        assert [each.result().status_code for each in slow] == [200] * 4

        # A request that does not come to its end.
        with contextlib.closing(HTTPConnection(server.url.removeprefix("http://"), timeout=60)) as slowly:
            slowly.request("POST", infer("topic"), b"{", JSON | {"content-length": "2"})
            late = slowly.getresponse()
            assert (late.status, b"within 2 s" in late.read()) == (408, True)

        # The end: accepted requests are answered, new ones refused, by both transports.
        accepted = threads.submit(client.post, infer("topic"), json=body(["kilo", "ba"]))
        with stub(server) as service:
            by_rpc = service.ModelInfer.future(asked("topic", text=["kilo"], language=["de"]))
            until_waiting(client, 3)
            server.process.terminate()
            while client.get("/v2/health/ready").status_code == 200:
                time.sleep(0.02)
            assert not service.ServerReady(pb.ServerReadyRequest()).ready
            refused = client.post(infer("topic"), json=body())
            assert (refused.status_code, "about to end" in refused.text) == (503, True)
            assert client.get("/v2/health/live").status_code == 200
            with pytest.raises(grpc.RpcError) as ending:
                service.ModelInfer(asked("topic", text=["kilo"], language=["de"]))
            assert ending.value.code() is grpc.StatusCode.UNAVAILABLE
            assert len(outputs_of(accepted.result())["label"]) == 2
            assert by_rpc.result().outputs[0].contents.bytes_contents
        assert server.process.wait(30) == 0


def test_a_token_is_asked_for_by_both_transports(locked_server: SharedServer) -> None:
    for given in ("", "Bearer", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xff"):
        with client_of(locked_server) as client:
            headers = {"authorization": given.encode("latin-1")} if given else {}
            refused = client.post(infer("topic"), json=body(), headers=headers)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert client.get("/v2/models/topic", headers=headers).status_code == 401
            assert client.get("/v2/health/ready", headers=headers).status_code == 200
            assert client.get("/metrics", headers=headers).status_code == 200
    with client_of(locked_server, authorization=f"Bearer {TOKEN}") as client:
        assert outputs_of(client.post(infer("topic"), json=body()))
    with stub(locked_server) as service:
        assert service.ServerReady(pb.ServerReadyRequest()).ready
        request = asked("topic", text=["kilo"], language=["de"])
        for metadata in ([], [("authorization", f"Bearer {TOKEN}x")]):
            with pytest.raises(grpc.RpcError) as refused_call:
                service.ModelInfer(request, metadata=metadata)
            assert refused_call.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert service.ModelInfer(request, metadata=[("authorization", f"Bearer {TOKEN}")]).outputs


def test_a_token_that_keeps_nobody_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ("", "short", "x" * 15, "ü" * 20, "a" * 20 + "\n"):
        monkeypatch.setenv(TOKEN_VARIABLE, given)
        with pytest.raises(ServingError, match="must have 16 or more"):
            read_token()
    monkeypatch.delenv(TOKEN_VARIABLE)
    assert read_token() is None


FAILING = f"""#!{sys.executable}
import sys
from lingraft.serving import metrics
from lingraft.serving.__main__ import main

def watching(name):
    def watch(batch):
        raise ArithmeticError("kilo")
    return watch

metrics.batch_observer = watching
sys.argv = sys.argv[2:]
main()
"""
"""An interpreter whose `-m lingraft.serving` has a queue that fails beside its body."""


def test_a_queue_that_fails_ends_the_server_so_that_another_one_is_started(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(FAILING)
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with run_server([bundle]) as server, client_of(server) as client:
        assert outputs_of(client.post(infer("topic"), json=body(["kilo"])))  # what went through the body is answered
        assert server.process.wait(60) == 1
        server.log.seek(0)
        log = server.log.read()
    [failed] = [line for line in map(json.loads, log.splitlines()) if line["event"] == "queue failed"]
    assert failed["error"] == "ArithmeticError"
    assert b"kilo" not in log

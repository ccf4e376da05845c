"""Real servers under load and orders: tokens, a full queue, clients that go away, and the end in good order."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import httpx
import pytest
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb

from lingraft.errors import ServingError
from lingraft.serving.settings import TOKEN_VARIABLE, read_token
from pipelines.endpoint import RunningServer, run_server
from tests.serving.asking import body, infer, outputs_of
from tests.serving.rpc import asked, stub, values_of
from tests.serving.shared import TOKEN, SharedServer

pytestmark = pytest.mark.integration
HELD = ("--no-detect", "--wait-ms=3000", "--waiting-texts=8", "--batch-texts=64")
"""A text waits three seconds for others, so that the test can do something meanwhile."""


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


def test_what_was_accepted_is_finished_and_no_more_than_the_queue_holds_is_accepted(bundle: Path) -> None:
    with held(bundle) as (server, client), ThreadPoolExecutor(8) as threads:
        waiting = threads.submit(client.post, infer("topic"), json=body(["kilo"] * 6))
        until_waiting(client, 6)
        refused = client.post(infer("topic"), json=body(["kilo"] * 3))
        assert (refused.status_code, "6 texts wait already" in refused.text) == (429, True)
        assert int(refused.headers["retry-after"]) >= 1
        with pytest.raises(grpc.RpcError) as full, stub(server) as service:
            service.ModelInfer(asked("topic", text=["kilo"] * 3, language=["de"]))
        assert full.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(outputs_of(waiting.result())["label"]) == 6

        accepted = threads.submit(client.post, infer("topic"), json=body(["kilo", "ba"]))
        with stub(server) as service:
            by_rpc = service.ModelInfer.future(asked("topic", text=["kilo"], language=["de"]))
            gone = service.ModelInfer.future(asked("topic", text=["kilo"] * 3, language=["de"]))
            until_waiting(client, 6)
            gone.cancel()  # a call that is cancelled takes its texts with it
            until_waiting(client, 3)
            server.process.terminate()
            assert len(outputs_of(accepted.result())["label"]) == 2
            assert values_of(by_rpc.result())["label"]
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

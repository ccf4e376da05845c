"""The endpoint as the demo uses it: started in a process of its own, asked over HTTP, and stopped."""

import base64
import contextlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import httpx
import numpy as np
from numpy.typing import NDArray

from lingraft.errors import RequestError, ServingError
from lingraft.retry import poll

_HOST = "127.0.0.1"
_POLL_S = 0.05
_STOP_S = 30.0
_ANSWER_S = 30.0
_LOG_TAIL_CHARACTERS = 2000
_NO_DETECTION = ("--no-detect",)
"""Flags of a server that loads no language detection, which takes seconds; queries name their language."""


class RunningServer(NamedTuple):
    """A server process and its addresses."""

    process: subprocess.Popen[bytes]
    url: str
    grpc: str
    """Host and port of gRPC."""
    log: IO[bytes]
    """File that takes the server's output."""


def predict(url: str, model: str, texts: Mapping[str, str], language: str) -> tuple[tuple[str, float], ...]:
    """Return what a model of a running server finds in one text of each input, with the probability of each.

    It is a label, a passage of the context, or any number of entities with their kinds.

    Raises:
        RequestError: the server refused the texts; the message has its reason.
    """
    inputs = [
        {"name": key, "datatype": "BYTES", "shape": [1], "data": [value]}
        for key, value in {**texts, "language": language}.items()
    ]
    outputs = {each["name"]: each["data"] for each in _post(url, f"/v2/models/{model}/infer", inputs=inputs)["outputs"]}
    if "entity" in outputs:
        entities = zip(outputs["entity"], outputs["kind"], outputs["score"], strict=True)
        return tuple((f"{entity!r} {kind}", score) for entity, kind, score in entities)
    values = outputs.get("label") or [repr(passage) for passage in outputs["answer"]]
    return tuple(zip(values, outputs["probability"], strict=True))


def embed(
    url: str, texts: Sequence[str], language: str | Sequence[str], model: str, input_type: str | None = None
) -> NDArray[np.float32]:
    """Return the vectors (N, E) that a model of a running server gives texts.

    Args:
        url: address of the server.
        texts: texts, 2,048 at most unless the server was started with another limit.
        language: that of all texts, or of each.
        model: name of the model.
        input_type: 'query', 'passage' or 'document', whose prefix stands before each text; 'none' for none; the
            model's default prompt if absent.

    Raises:
        RequestError: the server refused the texts; the message has its reason.
    """
    fields = {"model": model, "input": [*texts], "language": language, "input_type": input_type}
    body = _post(url, "/v1/embeddings", **fields, encoding_format="base64")
    return np.stack([np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in body["data"]])


def _post(url: str, path: str, **fields: Any) -> dict[str, Any]:
    with httpx.Client(base_url=url, timeout=_ANSWER_S, trust_env=False) as client:
        response = client.post(path, json=fields)
    body: dict[str, Any] = response.json()
    if response.is_error:
        error = body["error"]
        raise RequestError(f"the endpoint refused the texts: {error['message'] if isinstance(error, dict) else error}")
    return body


@contextlib.contextmanager
def run_server(
    bundles: Sequence[Path], ready_s: float = 120.0, settings: Sequence[str] = _NO_DETECTION
) -> Iterator[RunningServer]:
    """Run a server in a process of its own: yield it when it is ready, and stop it at the end.

    Raises:
        ServingError: the server ended early, or was not ready in time; the message has the end of its log.
    """
    with tempfile.TemporaryFile() as log:
        server = launch_server(bundles, log, settings)
        try:
            wait_until_ready(server, ready_s)
            yield server
        finally:
            stop(server.process)


def launch_server(
    bundles: Sequence[Path],
    log: IO[bytes],
    settings: Sequence[str] = _NO_DETECTION,
    process_group: int | None = None,
    program: Sequence[str] = ("-m", "lingraft.serving"),
) -> RunningServer:
    """Start a server on free ports; the caller waits for it with `wait_until_ready`, and stops it.

    Args:
        bundles: folders of the bundles to serve.
        log: readable file that takes the server's output.
        settings: flags of the server.
        process_group: process group that the server joins; a new one if 0, the caller's if None.
        program: arguments of Python that start the server.
    """
    port, grpc_port = free_ports(2)
    command = [sys.executable, *program, *(str(each.absolute()) for each in bundles), *settings]
    command += [f"--host={_HOST}", f"--port={port}", f"--grpc-port={grpc_port}"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, process_group=process_group
    )
    return RunningServer(process, f"http://{_HOST}:{port}", f"{_HOST}:{grpc_port}", log)


def free_ports(count: int) -> list[int]:
    """Return free ports of this machine."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((_HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def wait_until_ready(server: RunningServer, ready_s: float) -> None:
    """Wait until a server is ready.

    Raises:
        ServingError: the server ended early, or was not ready in time; the message has the end of its log.
    """
    with httpx.Client(timeout=1.0, trust_env=False) as client:
        for _ in poll(_POLL_S, within_s=ready_s):
            if (status := server.process.poll()) is not None:
                raise ServingError(f"the server ended with status {status}. It last said:\n{_tail(server.log)}")
            with contextlib.suppress(httpx.TransportError):
                if client.get(f"{server.url}/v2/health/ready").is_success:
                    return
    raise ServingError(f"the server was not ready after {ready_s:g} s. It last said:\n{_tail(server.log)}")


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode("utf-8", "replace")[-_LOG_TAIL_CHARACTERS:].strip()


def stop(process: "subprocess.Popen[Any]", within_s: float = _STOP_S) -> None:
    """Terminate a process, and kill it if it does not end in time (in seconds)."""
    process.terminate()
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

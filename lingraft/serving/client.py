"""Client of the server: start it in a process of its own, query it over HTTP, and stop it."""

import base64
import contextlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lingraft.errors import MissingExtraError, RequestError, ServingError
from lingraft.retry import poll
from lingraft.serving.handlers.classification import LABEL, PROBABILITY
from lingraft.serving.handlers.handler import LANGUAGE
from lingraft.serving.handlers.question_answering import ANSWER
from lingraft.serving.handlers.tagging import ENTITY, KIND, SCORE
from lingraft.serving.handlers.text_vectors import INPUT_TYPE, OPENAI_PATH

try:
    import httpx
except ImportError as error:
    raise MissingExtraError("kserve", "serving") from error

_HOST = "127.0.0.1"
_POLL_S = 0.05
_STOP_S = 30.0
_ANSWER_S = 30.0
_LOG_TAIL_CHARACTERS = 2000
_NO_DETECTION = ("--no-detect",)
"""Flags of a server that loads no language detection, which takes seconds; queries name their language."""


class Query(NamedTuple):
    """Texts by name of the endpoint's input, and their language."""

    language: str
    texts: Mapping[str, str]


class Prediction(NamedTuple):
    """A label, a passage of the context, or an entity with its kind, and its probability."""

    value: str
    probability: float


class QueryResult(NamedTuple):
    """A query with its predictions: one label or passage, or any number of entities."""

    query: Query
    predictions: tuple[Prediction, ...]


class RunningServer(NamedTuple):
    """A server process and its addresses."""

    process: subprocess.Popen[bytes]
    url: str
    grpc: str
    """Host and port of gRPC."""
    log: IO[bytes]
    """File that takes the server's output."""


def query_server(url: str, queries: Sequence[Query], model: str | None = None) -> list[QueryResult]:
    """Send each query to a model of a running server, by default its first one, in a request of its own.

    Raises:
        RequestError: the server refused a query; the message has its reason.
    """
    with httpx.Client(base_url=url, timeout=_ANSWER_S, trust_env=False) as client:
        name = model or client.get("/v2/models").json()["models"][0]
        return [_post_query(client, name, query) for query in queries]


def _post_query(client: httpx.Client, name: str, query: Query) -> QueryResult:
    texts = {**query.texts, LANGUAGE: query.language}
    inputs = [{"name": key, "datatype": "BYTES", "shape": [1], "data": [value]} for key, value in texts.items()]
    response = client.post(f"/v2/models/{name}/infer", json={"inputs": inputs})
    body: dict[str, Any] = response.json()
    if response.is_error:
        raise RequestError(f"the endpoint refused a question in {query.language!r}: {body['error']}")
    outputs = {output["name"]: output["data"] for output in body["outputs"]}
    return QueryResult(query, tuple(_predictions(outputs)))


def embed(
    url: str, texts: Sequence[str], language: str | Sequence[str], model: str, input_type: str | None = None
) -> NDArray[np.float32]:
    """Return the vectors (N, E) that a model of a running server gives texts, in as many requests as it wants.

    Args:
        language: that of all texts, or of each.
        input_type: 'query', 'passage' or 'document', whose prefix stands before each text; 'none' for none; the
            model's default prompt if absent.

    Raises:
        RequestError: the server refused the texts; the message has its reason.
    """
    languages = [language] if isinstance(language, str) else language
    with httpx.Client(base_url=url, timeout=_ANSWER_S, trust_env=False) as client:
        # No texts make a request as well, which the server refuses. A lone text fits any limit, so none is asked for.
        count = max(len(texts), len(languages), 1)
        most = 1 if count == 1 else _answered(client.get(f"/v2/models/{model}"))["parameters"]["max_texts"]
        starts = range(0, count, most)
        found = []
        for start in starts:
            spoken = languages if len(languages) == 1 else languages[start : start + most]
            found.append(_embed(client, texts[start : start + most], spoken, model, input_type))
        return np.concatenate(found)


def _embed(
    client: httpx.Client, texts: Sequence[str], languages: Sequence[str], model: str, input_type: str | None
) -> NDArray[np.float32]:
    fields = {"model": model, "input": [*texts], LANGUAGE: [*languages], INPUT_TYPE: input_type}
    body = _answered(client.post(OPENAI_PATH, json=fields | {"encoding_format": "base64"}))
    return np.stack([np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in body["data"]])


def _answered(response: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    if response.is_error:
        error = body["error"]
        raise RequestError(f"the endpoint refused the texts: {error['message'] if isinstance(error, dict) else error}")
    return body


def _predictions(outputs: dict[str, list[Any]]) -> Iterator[Prediction]:
    if ENTITY in outputs:
        entities = zip(outputs[ENTITY], outputs[KIND], outputs[SCORE], strict=True)
        return (Prediction(f"{entity!r} {kind}", score) for entity, kind, score in entities)
    values = outputs[LABEL] if LABEL in outputs else [repr(passage) for passage in outputs[ANSWER]]
    return map(Prediction, values, outputs[PROBABILITY])


@contextlib.contextmanager
def run_server(
    bundles: Sequence[Path], ready_s: float = 120.0, settings: Sequence[str] = _NO_DETECTION
) -> Iterator[RunningServer]:
    """Run a server in a process of its own: yield it when it is ready, and stop it at the end.

    Args:
        ready_s: time limit for the server to be ready, in seconds.

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
        log: readable file that takes the server's output.
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

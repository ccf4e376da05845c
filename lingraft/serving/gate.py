"""What stands between the network and kserve: which paths there are, and how a request is refused.

kserve answers malformed binary tensors with a 500, and lets anyone unload a model. Neither gets past here.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from lingraft.errors import MissingExtraError, RequestError
from lingraft.serving.questions import MAX_BODY_BYTES

try:
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from prometheus_client import Counter
    from starlette.datastructures import Headers
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise MissingExtraError("kserve", "serving") from error

_PROBLEMS_SHOWN = 5
_TOO_LARGE = f"send at most {MAX_BODY_BYTES} bytes in one request."
_BINARY = "inference-header-content-length"
_ELSEWHERE = "elsewhere"
"""Counts as one: paths that are not ours would be a metric each."""
_ANSWERS = Counter("lingraft_answers", "Answers of the endpoint, by path and HTTP status", ["path", "status"])


def guard(app: FastAPI, name: str, metadata: Callable[[], Mapping[str, Any]]) -> None:
    """Put the gate before an application that has not started yet.

    Args:
        app: kserve's application.
        name: of the only model.
        metadata: the model's; kserve's own answer leaves out languages and labels.
    """
    model = f"/v2/models/{name}"
    paths = ("/", "/metrics", "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models")
    # The first route that fits is taken, and kserve adds its own when it starts.
    app.add_api_route(model, lambda: JSONResponse(metadata()))
    app.add_middleware(_Gate, paths=frozenset({*paths, model, f"{model}/ready", f"{model}/infer"}))
    app.add_exception_handler(RequestError, _refuse_request)
    app.add_exception_handler(RequestValidationError, _refuse_form)
    app.add_exception_handler(HTTPException, _refuse_otherwise)


class _Gate:
    """Lets only those requests through whose path and headers are ones we answer."""

    def __init__(self, app: ASGIApp, paths: frozenset[str]) -> None:
        self._app = app
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = scope["path"] if scope["path"] in self._paths else _ELSEWHERE
        try:
            await (self._refusal(scope) or self._app)(scope, _limited(receive), _counted(send, asked))
        except Exception:  # what answers it stands before us
            _ANSWERS.labels(asked, HTTPStatus.INTERNAL_SERVER_ERROR.value).inc()
            raise

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if scope["path"] not in self._paths:
            return _refused(HTTPStatus.NOT_FOUND, f"there is no such path; there are {sorted(self._paths)}.")
        if _BINARY in headers:
            return _refused(
                HTTPStatus.BAD_REQUEST, f"send plain JSON, without binary tensors and the header {_BINARY}."
            )
        if scope["method"] != "POST":
            return None
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send JSON, with Content-Type: application/json.")
        if int(headers.get("content-length", 0)) > MAX_BODY_BYTES:
            return _refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LARGE)
        return None


def _counted(send: Send, path: str) -> Send:
    """Count an answer by its status."""

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            _ANSWERS.labels(path, message["status"]).inc()
        await send(message)

    return answer


def _limited(receive: Receive) -> Receive:
    """Stop reading a body that did not announce its length, and is too long."""
    read_bytes = 0

    async def read() -> Message:
        nonlocal read_bytes
        message = await receive()
        read_bytes += len(message.get("body", b""))
        if read_bytes > MAX_BODY_BYTES:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LARGE)
        return message

    return read


async def _refuse_request(_: Request, error: Exception) -> JSONResponse:
    return _refused(HTTPStatus.BAD_REQUEST, str(error))


async def _refuse_form(_: Request, error: Exception) -> JSONResponse:
    """What fastapi found: where and what, without the values, which may be long, private or not text."""
    assert isinstance(error, RequestValidationError)
    problems = [f"{'.'.join(map(str, found['loc']))[:80]}: {found['msg']}" for found in error.errors()]
    return _refused(
        HTTPStatus.BAD_REQUEST, "the request is not as it should be. " + "; ".join(problems[:_PROBLEMS_SHOWN])
    )


async def _refuse_otherwise(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _refused(error.status_code, error.detail, error.headers)


def _refused(status: int, reason: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The protocol's error; what JSON cannot carry, such as half a surrogate pair, is written as an escape."""
    safe = reason.encode("utf-8", "backslashreplace").decode("utf-8")
    return JSONResponse({"error": safe}, status, headers)

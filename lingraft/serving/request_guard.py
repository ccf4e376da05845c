"""ASGI middleware in front of the application: it checks token, path, headers and size of each request.

kserve answers malformed binary tensors with status 500, and lets any client unload any model; both are refused here.
FastAPI and uvicorn limit neither the size of a body, inflated or not, nor the time that sending it takes.
"""

import asyncio
import hmac
import time
import zlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lingraft.errors import OverloadedError, RequestError, StoppingError, UnknownModelError
from lingraft.serving import logs, metrics, playground
from lingraft.serving.endpoint import Endpoint

OPEN_PATHS = frozenset({"/", "/metrics", "/v2/health/live", "/v2/health/ready", *playground.HANDLERS})
"""Paths that need no token: probes, Prometheus and browsers send none. The playground's script sends the user's."""
LOG_FIELDS = "lingraft"
"""Key of a request's ASGI scope that holds the fields of its log line."""
_IDENTITY = "identity"
_CODINGS = {_IDENTITY, "gzip", "x-gzip"}
_GZIP = 16 + zlib.MAX_WBITS
"""Argument of zlib for data with a gzip header."""
_BINARY_HEADER = "inference-header-content-length"
_UNKNOWN_PATH = "elsewhere"
"""Label of all unknown paths in metrics; each would be a time series of its own otherwise."""


class RequestGuard:
    """Middleware that passes on only requests with a known path, a valid token and acceptable headers."""

    def __init__(self, app: ASGIApp, endpoint: Endpoint, paths: frozenset[str], token: str | None) -> None:
        self._app = app
        self._endpoint = endpoint
        self._paths = paths
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in self._paths else _UNKNOWN_PATH
        began_s = time.monotonic()
        scope[LOG_FIELDS] = {}
        status = HTTPStatus.INTERNAL_SERVER_ERROR.value

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._answer(scope, receive, send_and_note)
        finally:
            metrics.ANSWERS.labels(path, status).inc()
            if path not in OPEN_PATHS:
                logs.log_request(path, status, began_s, scope[LOG_FIELDS])

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if refusal := self._refusal(scope):
            await refusal(scope, receive, send)
        elif scope["method"] != "POST":
            await self._app(scope, receive, send)
        else:
            try:
                with self._endpoint.admit():
                    body = self._limited(receive)
                    compressed = _coding(Headers(scope=scope)) != _IDENTITY
                    await self._app(scope, self._inflated(body) if compressed else body, send)
            except RequestError as error:
                await error_response(error)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if scope["path"] not in self._paths:
            return json_error(HTTPStatus.NOT_FOUND, f"there is no such path; there are {sorted(self._paths)}.")
        authorization = headers.get("authorization", "")
        if scope["path"] not in OPEN_PATHS and not is_authorized(authorization, self._token):
            headers_sent = {"www-authenticate": "Bearer"}
            return json_error(HTTPStatus.UNAUTHORIZED, authorization_error(authorization), headers_sent)
        if _BINARY_HEADER in headers:
            reason = f"send plain JSON, without binary tensors and the header {_BINARY_HEADER}."
            return json_error(HTTPStatus.BAD_REQUEST, reason)
        if scope["method"] != "POST":
            return None
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return json_error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send JSON, with Content-Type: application/json.")
        if (coding := _coding(headers)) not in _CODINGS:
            reason = f"the body is encoded by {ascii(coding)[:40]}; send it as it is, or with Content-Encoding: gzip."
            return json_error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason, {"accept-encoding": "gzip"})
        if int(headers.get("content-length", 0)) > self._endpoint.settings.body_bytes:
            return json_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._too_large)
        return None

    @property
    def _too_large(self) -> str:
        return f"send at most {self._endpoint.settings.body_bytes} bytes in one request."

    def _limited(self, receive: Receive) -> Receive:
        settings = self._endpoint.settings
        left_bytes = settings.body_bytes
        complete = False
        deadline_s = asyncio.get_running_loop().time() + settings.body_s

        async def read() -> Message:
            nonlocal left_bytes, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline_s):
                    message = await receive()
            except TimeoutError as error:
                reason = f"the request was not sent within {settings.body_s:g} s. Send it faster."
                raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, reason) from error
            left_bytes -= len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if left_bytes < 0:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._too_large)
            return message

        return read

    def _inflated(self, receive: Receive) -> Receive:
        inflater = zlib.decompressobj(_GZIP)
        left_bytes = self._endpoint.settings.body_bytes

        async def read() -> Message:
            nonlocal left_bytes
            message = await receive()
            if message["type"] != "http.request":
                return message
            try:
                body = inflater.decompress(message.get("body", b""), left_bytes + 1)
            except zlib.error as error:
                raise HTTPException(HTTPStatus.BAD_REQUEST, f"the body is not gzip: {error}.") from error
            left_bytes -= len(body)
            if left_bytes < 0:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"inflated: {self._too_large}")
            if inflater.unused_data or not (message.get("more_body", False) or inflater.eof):
                raise HTTPException(HTTPStatus.BAD_REQUEST, "the body is not one whole gzip member. Send all of it.")
            return {**message, "body": body}

        return read


def _coding(headers: Headers) -> str:
    return ", ".join(headers.getlist("content-encoding")).strip().lower() or _IDENTITY


def is_authorized(authorization: str, token: str | None) -> bool:
    """Return whether a request's header carries the token; the comparison takes constant time."""
    if token is None:
        return True
    scheme, _, credentials = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(credentials.strip().encode(), token.encode())


def authorization_error(authorization: str) -> str:
    """Return the message for a request whose header does not carry the token."""
    if not authorization:
        return "send the endpoint's token: Authorization: Bearer TOKEN."
    return "what was sent is not the endpoint's token. Send the right one: Authorization: Bearer TOKEN."


class ErrorStatus(NamedTuple):
    """HTTP status of an error, and the headers of its response."""

    code: int
    headers: Mapping[str, str] | None = None


def error_status(error: RequestError) -> ErrorStatus:
    """Return the HTTP status of a refused request."""
    if isinstance(error, UnknownModelError):
        return ErrorStatus(HTTPStatus.NOT_FOUND)
    if isinstance(error, OverloadedError):
        return ErrorStatus(HTTPStatus.TOO_MANY_REQUESTS, {"retry-after": str(error.retry_after_s)})
    if isinstance(error, StoppingError):
        return ErrorStatus(HTTPStatus.SERVICE_UNAVAILABLE, {"connection": "close"})
    return ErrorStatus(HTTPStatus.BAD_REQUEST)


def error_response(error: RequestError) -> JSONResponse:
    """Return the response to a refused request, with the status of its error."""
    status = error_status(error)
    return json_error(status.code, str(error), status.headers)


def printable(reason: str) -> str:
    """Return a reason with lone surrogates, which UTF-8 cannot encode, escaped."""
    return reason.encode("utf-8", "backslashreplace").decode("utf-8")


def json_error(status: int, reason: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the protocol's error response."""
    return JSONResponse({"error": printable(reason)}, status, headers)

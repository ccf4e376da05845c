"""What stands between the network and the application: who may ask, which paths there are, and how much is read.

kserve answers malformed binary tensors with a 500, and lets anyone unload a model. Neither gets past here.
"""

import asyncio
import contextlib
import hmac
import time
import zlib
from collections.abc import Iterator, Mapping
from http import HTTPStatus

from lingraft.errors import MissingExtraError, OverloadedError, RequestError, StoppingError
from lingraft.serving import logs, metrics, playground
from lingraft.serving.endpoint import Endpoint

try:
    from starlette.datastructures import Headers
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise MissingExtraError("kserve", "serving") from error

OPEN_PATHS = frozenset({"/", "/metrics", "/v2/health/live", "/v2/health/ready"}) | playground.PATHS
"""What probes, Prometheus and browsers ask for, who carry no token; the playground's script carries the person's."""
LOG_FIELDS = "lingraft"
"""Key of a request's scope, for what the log is to say of it."""
IDENTITY = "identity"
CODINGS = frozenset({IDENTITY, "gzip", "x-gzip"})
"""How the body of a request may be encoded; x-gzip is an old name of gzip."""
_GZIP = 16 + zlib.MAX_WBITS
"""zlib's code for data with a gzip header."""
_BINARY_HEADER = "inference-header-content-length"
_UNKNOWN_PATH = "elsewhere"
"""Counts as one: paths that are not ours would be a metric each."""


class RequestGuard:
    """Lets only those requests through whose path, token and headers are ones we answer."""

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

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._answer(scope, receive, answer)
        finally:
            metrics.ANSWERS.labels(path, status).inc()
            if path not in OPEN_PATHS:
                logs.log_request(path, status, began_s, scope[LOG_FIELDS])

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if refused := self._refusal(scope):
            await refused(scope, receive, send)
            return
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            with self._endpoint.admit():
                body = self._limited(receive)
                inflated = _coding(Headers(scope=scope)) != IDENTITY
                await self._app(scope, self._inflated(body) if inflated else body, send)
        except RequestError as error:
            await error_response(error)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if scope["path"] not in self._paths:
            return json_error(HTTPStatus.NOT_FOUND, f"there is no such path; there are {sorted(self._paths)}.")
        given = headers.get("authorization", "")
        if scope["path"] not in OPEN_PATHS and not is_authorized(given, self._token):
            return json_error(HTTPStatus.UNAUTHORIZED, authorization_error(given), {"www-authenticate": "Bearer"})
        if _BINARY_HEADER in headers:
            return json_error(
                HTTPStatus.BAD_REQUEST, f"send plain JSON, without binary tensors and the header {_BINARY_HEADER}."
            )
        if scope["method"] != "POST":
            return None
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return json_error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send JSON, with Content-Type: application/json.")
        if (coding := _coding(headers)) not in CODINGS:
            reason = f"the body is encoded by {ascii(coding)[:40]}; send it as it is, or with Content-Encoding: gzip."
            return json_error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason, {"accept-encoding": "gzip"})
        if int(headers.get("content-length", 0)) > self._endpoint.settings.body_bytes:
            return json_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._too_large)
        return None

    @property
    def _too_large(self) -> str:
        return f"send at most {self._endpoint.settings.body_bytes} bytes in one request."

    def _limited(self, receive: Receive) -> Receive:
        """Stop reading a body that did not announce its length and is too long, or that takes too long to come."""
        read_bytes = 0
        whole = False
        settings = self._endpoint.settings
        until_s = asyncio.get_running_loop().time() + settings.body_s

        async def read() -> Message:
            nonlocal read_bytes, whole
            if whole:
                return await receive()
            with _time_limit(settings.body_s):
                async with asyncio.timeout_at(until_s):
                    message = await receive()
            read_bytes += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if read_bytes > settings.body_bytes:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._too_large)
            return message

        return read

    def _inflated(self, receive: Receive) -> Receive:
        """Inflate a gzip body as it comes, and no further than a body may be long."""
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
    return ", ".join(headers.getlist("content-encoding")).strip().lower() or IDENTITY


def is_authorized(authorization: str, token: str | None) -> bool:
    """Whether a request's header carries the token, compared in a time that does not tell how much of it is right."""
    if token is None:
        return True
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def authorization_error(authorization: str) -> str:
    """What to tell those whose header does not carry the token."""
    if not authorization:
        return "send the endpoint's token: Authorization: Bearer TOKEN."
    return "what was sent is not the endpoint's token. Send the right one: Authorization: Bearer TOKEN."


@contextlib.contextmanager
def _time_limit(limit_s: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise HTTPException(
            HTTPStatus.REQUEST_TIMEOUT, f"the request was not sent within {limit_s:g} s. Send it faster."
        ) from error


def error_response(error: RequestError) -> JSONResponse:
    """A request that is not answered, with the status that its reason has."""
    if isinstance(error, OverloadedError):
        headers = {"retry-after": str(error.retry_after_s)}
        return json_error(HTTPStatus.TOO_MANY_REQUESTS, str(error), headers)
    if isinstance(error, StoppingError):
        return json_error(HTTPStatus.SERVICE_UNAVAILABLE, str(error), {"connection": "close"})
    return json_error(HTTPStatus.BAD_REQUEST, str(error))


def json_error(status: int, reason: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The protocol's error; what JSON cannot carry, such as half a surrogate pair, is written as an escape."""
    safe = reason.encode("utf-8", "backslashreplace").decode("utf-8")
    return JSONResponse({"error": safe}, status, headers)

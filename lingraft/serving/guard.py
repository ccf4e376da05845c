"""ASGI middleware in front of KServe's application, and the shape of refusals.

KServe asks for no token, and neither KServe nor uvicorn limits the size of a body.
"""

import hmac
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lingraft.serving import metrics

_OPEN_PATHS = frozenset({"/", "/metrics", "/v2/health/live", "/v2/health/ready", "/ui"})
"""Paths that need no token: probes, Prometheus and browsers send none. The playground's script sends the user's."""
TOKEN_WANTED = "send the endpoint's token: Authorization: Bearer TOKEN. What was sent is none, or not this one."


class Guard:
    """Middleware that passes on requests with the token and a body that is not too large, and counts the answers."""

    def __init__(self, app: ASGIApp, token: str | None, body_bytes: int) -> None:
        self._app = app
        self._token = token
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        left_bytes, status = self._body_bytes, 500

        async def limited() -> Message:
            nonlocal left_bytes
            message = await receive()
            left_bytes -= len(message.get("body", b""))
            if left_bytes < 0:
                raise HTTPException(413, f"send at most {self._body_bytes} bytes in one request.")
            return message

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        app = self._app
        authorization = Headers(scope=scope).get("authorization")
        if scope["path"] not in _OPEN_PATHS and not is_authorized(authorization, self._token):
            app = refuse(scope["path"], 401, TOKEN_WANTED, headers={"www-authenticate": "Bearer"})
        try:
            with metrics.REQUESTS.track_inprogress():
                await app(scope, limited, noted)
        finally:
            metrics.ANSWERS.labels(getattr(scope.get("route"), "path", "elsewhere"), status).inc()


def is_authorized(authorization: str | None, token: str | None) -> bool:
    """Return whether a request's header carries the token; the comparison takes constant time."""
    scheme, _, credentials = (authorization or "").partition(" ")
    given = credentials.strip().encode()
    return token is None or (scheme.lower() == "bearer" and hmac.compare_digest(given, token.encode()))


def refuse(path: str, status: int, reason: str, code: str | None = None, headers: Any = None) -> JSONResponse:
    """Return the response to a refused request, in the shape of the API that it was sent to."""
    error: Any = reason
    if path.startswith("/v1/"):
        error = {"message": reason, "type": "invalid_request_error", "param": None, "code": code}
    return JSONResponse({"error": error}, status, headers)

"""The playground: a page at `/ui` to try the models in several languages side by side.

Its files are part of the package. They load nothing from other servers, and use only the protocol.
"""

from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

Handler = Callable[[Request], Awaitable[Response]]
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A browser revalidates each time, so that no old script runs against an upgraded server.
    "Cache-Control": "no-cache",
}


def _file_handler(content: bytes, media_type: str) -> Handler:
    async def handler(_: Request) -> Response:
        return Response(content, headers=_HEADERS, media_type=media_type)

    return handler


async def _without_slash(_: Request) -> Response:
    # The URL is relative, as in the page, since gateways may add a prefix.
    return RedirectResponse("../ui", headers=_HEADERS)


HANDLERS: dict[str, Handler] = {
    f"/ui/{file.name}".removesuffix("/page.html"): _file_handler(file.read_bytes(), _TYPES[Path(file.name).suffix])
    for file in resources.files(__name__).iterdir()
    if Path(file.name).suffix in _TYPES
} | {"/ui/": _without_slash}
"""Handlers of the page and its files by path; they need no token."""

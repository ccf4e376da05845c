"""The playground: a page at `/ui` to try the models in several languages side by side.

Its files are part of the package. They load nothing from other servers, and use only the protocol.
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from lingraft.errors import MissingExtraError

try:
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response
except ImportError as error:
    raise MissingExtraError("kserve", "serving") from error

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A browser revalidates each time, so that no old script runs against an upgraded server.
    "Cache-Control": "no-cache",
}


def _files() -> dict[str, Traversable]:
    files = (file for file in resources.files(__name__).iterdir() if Path(file.name).suffix in _TYPES)
    return {f"/ui/{file.name}".removesuffix("/page.html"): file for file in files}


_SLASHED = "/ui/"
PATHS = frozenset(_files()) | {_SLASHED}
"""Paths of the page and its files, which need no token."""


def handlers() -> Mapping[str, Callable[[Request], Awaitable[Response]]]:
    """Return the handler of each path; files are read once, in this call."""
    return {path: _handler(file) for path, file in _files().items()} | {_SLASHED: _without_slash}


async def _without_slash(_: Request) -> Response:
    """Redirect to `/ui`, by a relative URL as in the page, since gateways may add a prefix."""
    return RedirectResponse("../ui", headers=_HEADERS)


def _handler(file: Traversable) -> Callable[[Request], Awaitable[Response]]:
    content = file.read_bytes()
    media_type = _TYPES[Path(file.name).suffix]

    async def handler(_: Request) -> Response:
        return Response(content, headers=_HEADERS, media_type=media_type)

    return handler

"""The playground: a page at `/ui` to try the models in several languages side by side.

Its files are part of the package. They load nothing from other servers, and use only the protocol.
"""

from collections.abc import Awaitable, Callable
from importlib import resources
<<<<<<< HEAD:lingraft/serving/playground/__init__.py
from importlib.resources.abc import Traversable
from pathlib import Path
=======
>>>>>>> house:lingraft/serving/playground.py

from lingraft.errors import MissingExtraError

try:
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response
except ImportError as error:
    raise MissingExtraError("kserve", "serving") from error

<<<<<<< HEAD:lingraft/serving/playground/__init__.py
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
=======
Handler = Callable[[Request], Awaitable[Response]]
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
>>>>>>> house:lingraft/serving/playground.py
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


<<<<<<< HEAD:lingraft/serving/playground/__init__.py
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

=======
def _file_handler(content: bytes, media_type: str) -> Handler:
>>>>>>> house:lingraft/serving/playground.py
    async def handler(_: Request) -> Response:
        return Response(content, headers=_HEADERS, media_type=media_type)

    return handler


async def _without_slash(_: Request) -> Response:
    # The URL is relative, as in the page, since gateways may add a prefix.
    return RedirectResponse("../ui", headers=_HEADERS)


HANDLERS: dict[str, Handler] = {
    f"/ui/{file.name}".removesuffix("/page.html"): _file_handler(
        file.read_bytes(), _TYPES[file.name.rpartition(".")[2]]
    )
    for file in resources.files("lingraft").joinpath("templates", "playground").iterdir()
} | {"/ui/": _without_slash}
"""Handlers of the page and its files by path; they need no token."""

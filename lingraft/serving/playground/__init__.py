"""The playground: a page at `/ui` to try the models in several languages side by side.

The page loads nothing from other servers, and uses only the protocol.
"""

import base64
import hashlib
import re
from importlib import resources

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

_PAGE = (resources.files(__name__) / "page.html").read_text("utf-8")
_SCRIPT, _STYLE = (
    base64.b64encode(hashlib.sha256(re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", _PAGE, re.DOTALL)[0].encode()).digest())
    for tag in ("script", "style")
)
_POLICY = (
    f"default-src 'none'; script-src 'sha256-{_SCRIPT.decode()}'; style-src 'sha256-{_STYLE.decode()}'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


async def page(_: Request) -> Response:
    """Answer with the page, which a browser asks for anew each time, so that none runs against another server."""
    return HTMLResponse(_PAGE, headers={"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"})

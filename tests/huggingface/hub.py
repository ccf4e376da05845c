"""A server that answers as the Hugging Face hub does for what its library asks: a model's commit, its files, each file.

Repositories are folders: <root>/<organisation>/<name>, of datasets <root>/datasets/<organisation>/<name>. Every one has
one commit, `COMMIT`, which the branch `main` and the tag `v1` stand for.

Answers follow what the hub documents and what was recorded of it: model information is public even where the files are
gated; who is not known is told 401 of a repository that does not exist, who is known 404; a small file is redirected to
a place on the hub (307), one of Git LFS to a signed address of a store on another host (302), which refuses requests
that bring a token of the hub besides.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REVISIONS = ("main", "v1", COMMIT)
GATED, SEALED = "closed/gated", "closed/sealed"
"""Repositories that `TOKEN` opens, and that nobody may read."""
LIMITED = "makers/limited"
"""A repository that is not told of because there were too many requests."""
XET = "makers/xet"
"""A repository whose large files are in a Xet store, which refuses whoever comes."""
TOKEN = "a-token-of-the-tests"
_LFS = (".safetensors", ".bin", ".onnx", ".pt")
"""What a repository's .gitattributes gives to Git LFS."""
_LIMITS = {"RateLimit": '"api";r=499;t=295', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}
_SIGNED = "Signature"
"""Parameter of a store's addresses."""


class Hub(ThreadingHTTPServer):
    """The server, with what it was asked for."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.asked: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def store(self) -> str:
        """Where files of Git LFS are: to a client, another host."""
        return f"http://localhost:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *arguments: object) -> None:
        """The tests look at `asked` instead."""

    def _answer(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        if str(self.headers.get("Host")).startswith("localhost"):
            return self._from_store(path, parse_qs(url.query))
        self.server.asked.append(path)
        if self.headers.get("Authorization") not in (None, f"Bearer {TOKEN}"):
            return self._fail(401, None, "Invalid credentials in Authorization header")
        match path.strip("/").split("/"):
            case ["api", "models", organisation, name, "revision", *revision]:
                return self._of(organisation, name, "/".join(revision), self._information, public=True)
            case ["api", "datasets", organisation, name]:
                return self._of(f"datasets/{organisation}", name, "main", self._information, public=True)
            case ["api", "datasets", organisation, name, "revision", *revision]:
                place = f"datasets/{organisation}"
                return self._of(place, name, "/".join(revision), self._information, public=True)
            case ["api", "models", organisation, name, "tree", *revision]:
                whole = parse_qs(url.query).get("recursive", [""])[0].lower() in ("1", "true")
                return self._of(organisation, name, "/".join(revision), partial(self._tree, whole))
            case ["api", "models", organisation, name, "xet-read-token", revision]:
                return self._of(organisation, name, revision, self._xet_token)
            case ["api", "resolve-cache", "models", organisation, name, revision, *file]:
                return self._of(organisation, name, revision, partial(self._small, file="/".join(file)))
            case [organisation, name, "resolve", revision, *file]:
                return self._of(organisation, name, revision, partial(self._resolved, file="/".join(file)))
            case _:
                return self._fail(404, None, "Sorry, we can't find the page you are looking for.")

    def _of(
        self, organisation: str, name: str, revision: str, send: Callable[[Path], None], public: bool = False
    ) -> None:
        """Answer of a repository, if whoever asks may know of it."""
        known, title = "Authorization" in self.headers, f"{organisation}/{name}"
        folder = self.server.root / organisation / name
        if title == LIMITED:
            limits = {"RateLimit": '"api";r=0;t=55', "RateLimit-Policy": _LIMITS["RateLimit-Policy"]}
            return self._fail(429, None, "Too Many Requests", limits)
        if not folder.is_dir():
            if known:
                return self._fail(404, "RepoNotFound", "Repository not found")
            return self._fail(401, None, "Invalid username or password.")
        if not public and title in (GATED, SEALED) and (title == SEALED or not known):
            said = f"Access to model {title} is restricted"
            if known:
                page = f"{self.server.endpoint}/{title}"
                return self._fail(403, "GatedRepo", f"{said} and you are not in the authorized list. Visit {page}.")
            return self._fail(401, "GatedRepo", f"{said}. You must have access to it and be authenticated.")
        if revision not in REVISIONS:
            return self._fail(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return send(folder)

    def _fail(self, status: int, code: str | None, message: str, headers: dict[str, str] | None = None) -> None:
        codes = {"X-Error-Code": code} if code else {}
        said = {"X-Error-Message": message, "Content-Type": "application/json; charset=utf-8"}
        self._reply(status, json.dumps({"error": message}).encode(), codes | said | (headers or {}))

    def _information(self, folder: Path) -> None:
        name = "/".join(folder.parts[-2:])
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        gated = {"private": False, "gated": "auto" if name in (GATED, SEALED) else False}
        self._json({"id": name, "sha": COMMIT, **gated, "siblings": [{"rfilename": file} for file in files]})

    def _tree(self, whole: bool, folder: Path) -> None:
        """Files and folders, those in folders too where all are asked for."""
        found = sorted(folder.rglob("*") if whole else folder.iterdir())
        self._json([_entry(folder, path) for path in found])

    def _json(self, value: object) -> None:
        self._reply(200, json.dumps(value).encode(), {"Content-Type": "application/json; charset=utf-8"})

    def _resolved(self, folder: Path, file: str) -> None:
        """Say where a file is, and what it is."""
        path = folder / file
        if not path.is_file():
            return self._fail(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": COMMIT})
        content, place = path.read_bytes(), "/".join((*folder.parts[-2:], COMMIT, file))
        lfs = path.suffix in _LFS
        mark = hashlib.sha256(content).hexdigest() if lfs else _blob(content)
        there = f"/api/resolve-cache/models/{quote(place)}?etag=%22{mark}%22"
        if lfs:
            there = f"{self.server.store}/{quote(place)}?X-Id=1&{_SIGNED}={mark}"
        headers = {"Location": there, "X-Repo-Commit": COMMIT, "Content-Type": "text/plain; charset=utf-8"}
        headers |= {"X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{mark}"'}
        if lfs and "/".join(folder.parts[-2:]) == XET:
            token = f"{self.server.endpoint}/api/models/{XET}/xet-read-token/{COMMIT}"
            headers |= {"X-Xet-Hash": mark, "Link": f'<{token}>; rel="xet-auth"'}
        status, said = (302, "Found") if lfs else (307, "Temporary Redirect")
        return self._reply(status, f"{said}. Redirecting to {there}".encode(), headers)

    def _xet_token(self, _: Path) -> None:
        """Say where the store of large files is, and give a token for it."""
        expires = int(time.time()) + 3600
        headers = {"X-Xet-Cas-Url": f"{self.server.store}/xet", "X-Xet-Token-Expiration": str(expires)}
        self._reply(200, b"{}", headers | {"X-Xet-Access-Token": TOKEN})

    def _small(self, folder: Path, file: str) -> None:
        content = (folder / file).read_bytes()
        self._content(content, {"ETag": f'"{_blob(content)}"', "X-Repo-Commit": COMMIT})

    def _from_store(self, path: str, parameters: dict[str, list[str]]) -> None:
        """Answer as a store does, which knows signed addresses only."""
        if path.startswith("/xet/"):
            return self._refuse(403, "AccessDenied", "Access Denied")
        organisation, name, _, *file = path.strip("/").split("/")
        content = self.server.root.joinpath(organisation, name, *file).read_bytes()
        if "Authorization" in self.headers:
            return self._refuse(400, "InvalidArgument", "Only one auth mechanism allowed")
        if parameters.get(_SIGNED) != [hashlib.sha256(content).hexdigest()]:
            return self._refuse(403, "AccessDenied", "Access Denied")
        return self._content(content, {"ETag": f'"{hashlib.md5(content).hexdigest()}"'})

    def _refuse(self, status: int, code: str, message: str) -> None:
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
        self._reply(status, body.encode(), {"Content-Type": "application/xml"})

    def _content(self, content: bytes, headers: dict[str, str]) -> None:
        self._reply(200, content, headers | {"Content-Type": "application/octet-stream"})

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        everywhere = _LIMITS | {"X-Request-Id": "Root=1-669450a5", "Content-Length": str(len(body))}
        for name, value in (everywhere | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _entry(folder: Path, path: Path) -> dict[str, Any]:
    """A line of a repository's listing."""
    name = path.relative_to(folder).as_posix()
    if path.is_dir():
        return {"type": "directory", "path": name, "size": 0, "oid": _blob(name.encode())}
    content = path.read_bytes()
    if path.suffix not in _LFS:
        return {"type": "file", "path": name, "size": len(content), "oid": _blob(content)}
    mark = hashlib.sha256(content).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{mark}\nsize {len(content)}\n".encode()
    lfs = {"oid": mark, "size": len(content), "pointerSize": len(pointer)}
    return {"type": "file", "path": name, "size": len(content), "oid": _blob(pointer), "lfs": lfs}


def _blob(content: bytes) -> str:
    """Git's name for a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serving(root: Path) -> Iterator[Hub]:
    """A hub on a free port, until the block ends."""
    with Hub(root) as hub:
        thread = threading.Thread(target=hub.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()

"""A server that answers as the Hugging Face hub does for what its library asks: a model's commit, its files, each file.

Repositories are folders: <root>/<organisation>/<name>. Every one has one commit, `COMMIT`, which the branch `main` and
the tag `v1` stand for.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REVISIONS = ("main", "v1", COMMIT)
GATED, SEALED = "closed/gated", "closed/sealed"
"""Repositories that `TOKEN` opens, and that nobody may read."""
TOKEN = "a-token-of-the-tests"


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
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(path)
        match path.strip("/").split("/"):
            case ["api", "models", organisation, name, "revision", *revision]:
                self._send(organisation, name, "/".join(revision), lambda folder: self._json(_information(folder)))
            case ["api", "models", organisation, name, "tree", *revision]:
                self._send(organisation, name, "/".join(revision), lambda folder: self._json(_tree(folder)))
            case [organisation, name, "resolve", revision, file]:
                self._send(organisation, name, revision, lambda folder: self._file(folder / file))
            case _:
                self._fail(404, "EntryNotFound")

    def _send(self, organisation: str, name: str, revision: str, send: Any) -> None:
        folder = self.server.root / organisation / name
        key = {GATED: f"Bearer {TOKEN}", SEALED: None}.get(f"{organisation}/{name}", self.headers.get("Authorization"))
        if key != self.headers.get("Authorization"):
            self._fail(403, "GatedRepo")
        elif not folder.is_dir():
            self._fail(404, "RepoNotFound")
        elif revision not in REVISIONS:
            self._fail(404, "RevisionNotFound")
        else:
            send(folder)

    def _fail(self, status: int, code: str) -> None:
        self._reply(status, b"", {"X-Error-Code": code, "X-Error-Message": code})

    def _json(self, value: object) -> None:
        self._reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _file(self, path: Path) -> None:
        if not path.is_file():
            return self._fail(404, "EntryNotFound")
        content = path.read_bytes()
        self._reply(200, content, {"ETag": f'"{_blob(content)}"', "X-Repo-Commit": COMMIT})

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _information(folder: Path) -> dict[str, Any]:
    name = "/".join(folder.parts[-2:])
    siblings = [{"rfilename": path.relative_to(folder).as_posix()} for path in _files(folder)]
    return {"_id": "1", "id": name, "modelId": name, "sha": COMMIT, "private": False, "tags": [], "siblings": siblings}


def _tree(folder: Path) -> list[dict[str, Any]]:
    return [
        {
            "type": "file",
            "path": path.relative_to(folder).as_posix(),
            "size": path.stat().st_size,
            "oid": _blob(path.read_bytes()),
        }
        for path in _files(folder)
    ]


def _blob(content: bytes) -> str:
    """Git's name for a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serving(root: Path) -> Iterator[Hub]:
    """A hub on a free port, until the block ends."""
    with Hub(root) as hub:
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()

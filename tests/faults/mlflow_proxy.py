"""A real HTTP proxy that stands between MLflow's client and its server, and does to requests what networks do."""

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER_LIMIT_S = 60


class Fault(Enum):
    """What becomes of a request."""

    NONE = auto()
    REFUSED = auto()
    """Answered with 500; the server never sees it."""
    CUT = auto()
    """The connection ends before the server sees the request."""
    UNANSWERED = auto()
    """The server does the work, and the connection ends before its answer is through."""
    UNANSWERED_500 = auto()
    """The server does the work, and a 500 comes in place of its answer."""
    HELD = auto()
    """Forwarded only once `Proxy.released` is set."""


@dataclass
class Proxy:
    """Listens on a port of its own; `fault` decides what becomes of each request."""

    server_port: int
    fault: Callable[[str], Fault] = lambda request: Fault.NONE
    """Given method and path, such as `POST /api/2.0/mlflow/runs/create`."""
    requests: list[str] = field(default_factory=list)
    """All that came, in order."""
    injected: list[tuple[Fault, str]] = field(default_factory=list)
    """What was done to which request."""
    released: threading.Event = field(default_factory=threading.Event)
    forwarded: list[str] = field(default_factory=list)
    """What the server has answered, whoever learned of it."""
    port: int = 0
    _listening: ThreadingHTTPServer | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def up(self) -> None:
        """Listen, on the same port every time."""
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._listening = _Listening(("127.0.0.1", self.port), handler)
        self.port = self._listening.server_port
        threading.Thread(target=self._listening.serve_forever, args=(0.02,), daemon=True).start()

    def down(self) -> None:
        """Stop listening: connections are refused."""
        assert self._listening
        self._listening.shutdown()
        self._listening.server_close()
        self._listening = None

    def wait_until(self, seen: Callable[[], bool]) -> None:
        """Wait for something that requests bring about."""
        with self._changed:
            assert self._changed.wait_for(seen, ANSWER_LIMIT_S), self.requests

    def note(self, notes: list[Any], what: object) -> None:
        """Note what happened, and wake whoever waits for it."""
        with self._changed:
            notes.append(what)
            self._changed.notify_all()


@contextlib.contextmanager
def proxy_to(server_port: int) -> Iterator[Proxy]:
    """A proxy that forwards everything until it is told otherwise."""
    proxy = Proxy(server_port)
    proxy.up()
    try:
        yield proxy
    finally:
        proxy.released.set()
        if proxy._listening:
            proxy.down()


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has not waited for its answer is what is tried here."""


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request, proxy = f"{self.command} {self.path.partition('?')[0]}", self.proxy
        fault = proxy.fault(request)
        proxy.note(proxy.requests, request)
        if fault is not Fault.NONE:
            proxy.note(proxy.injected, (fault, request))
        if fault is Fault.REFUSED:
            return self._answer(http.client.INTERNAL_SERVER_ERROR, b"no")
        if fault is Fault.HELD:
            proxy.released.wait(ANSWER_LIMIT_S)
        if fault is not Fault.CUT:
            status, answer = self._forward(body)
            proxy.note(proxy.forwarded, request)
            if fault is Fault.UNANSWERED_500:
                return self._answer(http.client.INTERNAL_SERVER_ERROR, b"no")
            if fault is not Fault.UNANSWERED:
                return self._answer(status, answer)
        return None

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    def _forward(self, body: bytes) -> tuple[int, bytes]:
        server = http.client.HTTPConnection("127.0.0.1", self.proxy.server_port, timeout=ANSWER_LIMIT_S)
        try:
            server.request(self.command, self.path, body, dict(self.headers))
            answer = server.getresponse()
            return answer.status, answer.read()
        finally:
            server.close()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

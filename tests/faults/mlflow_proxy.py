"""A real HTTP proxy that stands between MLflow's client and its server, and does to requests what networks do.

Like real ones it keeps connections open, hands on the server's headers, and answers in HTML where it refuses by itself.
"""

import contextlib
import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER_LIMIT_S = 60
_ID = re.compile(r"(m-)?[0-9a-f]{32}")
_OF_A_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}
"""Headers that a proxy does not hand on."""


class Fault(Enum):
    NONE = auto()
    REFUSED = auto()
    """The server answers 500 as MLflow does where something in it breaks, and does nothing."""
    LIMITED = auto()
    """The proxy answers 429, with the seconds to wait, and asks nobody."""
    CUT = auto()
    """The connection ends before the server sees the request."""
    UNANSWERED = auto()
    """The server does the work, and the connection ends before its answer is through."""
    TORN = auto()
    """The server does the work, and the connection ends in the middle of its answer."""
    GATEWAY_TIMEOUT = auto()
    """The server does the work, and the proxy answers 504 in its place."""
    HELD = auto()
    """Forwarded only once `Proxy.released` is set."""


PASSING = (
    Fault.REFUSED,
    Fault.LIMITED,
    Fault.CUT,
    Fault.UNANSWERED,
    Fault.TORN,
    Fault.GATEWAY_TIMEOUT,
)
"""After which the same request may be answered."""


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
    _listening: "_Listening | None" = None
    _answering: int = 0
    _closed: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def up(self) -> None:
        handler, self._closed = type("Handler", (_Handler,), {"proxy": self}), False
        self._listening = _Listening(("127.0.0.1", self.port), handler)
        self.port = self._listening.server_port
        threading.Thread(target=self._listening.serve_forever, args=(0.02,), daemon=True).start()

    def down(self) -> None:
        """Answer what has come, then end the connections that are open, and refuse new ones."""
        assert self._listening
        with self._changed:
            self._closed = True
            assert self._changed.wait_for(lambda: not self._answering, ANSWER_LIMIT_S)
        self._listening.shutdown()
        self._listening.server_close()
        self._listening.hang_up()
        self._listening = None

    def fail_first_of_each(self, *faults: Fault) -> None:
        """Do something to the first request of each method and path, the faults in turn; ids in paths count as one."""
        seen: set[str] = set()

        def decide(request: str) -> Fault:
            kind = _ID.sub("ID", request)
            if kind in seen:
                return Fault.NONE
            seen.add(kind)
            return faults[(len(seen) - 1) % len(faults)]

        self.fault = decide

    def wait_until(self, seen: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(seen, ANSWER_LIMIT_S), self.requests

    @contextlib.contextmanager
    def answering(self) -> Iterator[bool]:
        with self._changed:
            wanted = not self._closed
            self._answering += wanted
        try:
            yield wanted
        finally:
            with self._changed:
                self._answering -= wanted
                self._changed.notify_all()

    def note(self, notes: list[Any], what: object) -> None:
        with self._changed:
            notes.append(what)
            self._changed.notify_all()


@contextlib.contextmanager
def proxy_to(server_port: int) -> Iterator[Proxy]:
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

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has not waited for its answer is what is tried here."""


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        with self.proxy.answering() as wanted:
            if wanted:
                return self._answer_by_fault()
        self.close_connection = True
        return None

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    def _answer_by_fault(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request, proxy = f"{self.command} {self.path.partition('?')[0]}", self.proxy
        fault = proxy.fault(request)
        proxy.note(proxy.requests, request)
        if fault is not Fault.NONE:
            proxy.note(proxy.injected, (fault, request))
        if fault is Fault.REFUSED:
            said = {"error_code": "INTERNAL_ERROR", "message": "(psycopg.OperationalError) the connection is closed"}
            headers = {"Content-Type": "application/json"}
            return self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, json.dumps(said).encode(), headers)
        if fault is Fault.LIMITED:
            return self._refuse(HTTPStatus.TOO_MANY_REQUESTS)
        if fault is Fault.HELD:
            proxy.released.wait(ANSWER_LIMIT_S)
        if fault is not Fault.CUT:
            answer = self._forward(body)
            proxy.note(proxy.forwarded, request)
            if fault is Fault.GATEWAY_TIMEOUT:
                return self._refuse(HTTPStatus.GATEWAY_TIMEOUT)
            if fault is Fault.TORN:
                return self._tear(*answer)
            if fault is not Fault.UNANSWERED:
                return self._answer(*answer)
        self.close_connection = True
        return None

    def _forward(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        server = http.client.HTTPConnection("127.0.0.1", self.proxy.server_port, timeout=ANSWER_LIMIT_S)
        try:
            server.request(self.command, self.path, body, dict(self.headers))
            answer = server.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            server.close()

    def _refuse(self, status: HTTPStatus) -> None:
        title = f"{status.value} {status.phrase}"
        page = f"<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n"
        headers = {"Content-Type": "text/html"} | (
            {"Retry-After": "1"} if status is HTTPStatus.TOO_MANY_REQUESTS else {}
        )
        self._answer(status, f"{page}<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n".encode(), headers)

    def _tear(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._begin(status, len(body), headers)
        self.wfile.write(body[: len(body) // 2])
        self.close_connection = True

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._begin(status, len(body), headers)
        self.wfile.write(body)

    def _begin(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in _OF_A_CONNECTION:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

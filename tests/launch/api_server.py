"""A Kubernetes API server with state and watches, as much of it as launching asks, and with faults.

It is small, but what stands behind it is real: a pod is a process of this machine, started as the manifest says.
"""

import contextlib
import http.client
import json
import queue
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

Document = dict[str, Any]
NAMESPACE = "lingraft"
_VERSION = ("gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform")
DROP = -1
"""A fault: the connection is closed without an answer."""
_GROUP = r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)"
_PATH = re.compile(rf"{_GROUP}(?:/namespaces/{NAMESPACE}(?=/))?/(?P<plural>\w+)(?:/(?P<name>[^/]+))?(?P<log>/log)?")
_PROXY = re.compile(rf"/api/v1/namespaces/{NAMESPACE}/services/(?P<name>[^/]+)/proxy(?P<path>/.*)")
_PROXY_S = 30
_VERBS = {"POST": "create", "DELETE": "delete", "watch": "watch"}


class ApiServer:
    """What the server has, what it was asked, and how it fails."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Document] = {}
        self.logs: dict[str, list[str]] = defaultdict(list)
        """Lines by pod."""
        self.asked: list[tuple[str, str]] = []
        self.faults: dict[tuple[str, str], list[int]] = defaultdict(list)
        """Statuses, each answered once, to a method and a plural; 'watch' is a method of its own."""
        self.refusals: dict[tuple[str, str], str] = {}
        """Messages of refusals with status 403."""
        self.created: Callable[[str, Document], None] = lambda _plural, _made: None
        """What the cluster does with what is created."""
        self.deleted: Callable[[str, Document], None] = lambda _plural, _gone: None
        self.allows: Callable[[Document], bool] = lambda _asked: True
        """Whether somebody may do something."""
        self.services: dict[str, str] = {}
        """Address by 'name:port' of a service, whose pods the proxy asks there."""
        self.used: set[tuple[str, str, str]] = set()
        """Rights that were needed for what was asked: group, resource and verb."""
        self._version, self._oldest = 1, 0
        self._watches: list[tuple[str, queue.Queue[Document | None]]] = []
        self._lock = threading.RLock()

    @contextmanager
    def serving(self, folder: Path) -> Iterator[Path]:
        """A kubectl configuration for it."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": self}))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "us", "namespace": NAMESPACE}}],
            "clusters": [{"name": "tests", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "us", "user": {}}],
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        try:
            yield path
        finally:
            self.hang_up()
            server.shutdown()
            server.server_close()

    def put(self, plural: str, changed: Document) -> Document:
        """Store an object, and tell who watches."""
        with self._lock:
            self._version += 1
            name = changed["metadata"]["name"]
            kind = "MODIFIED" if (plural, name) in self.objects else "ADDED"
            changed["metadata"] |= {"resourceVersion": str(self._version), "namespace": NAMESPACE}
            self.objects[plural, name] = changed
            self._tell(plural, {"type": kind, "object": json.loads(json.dumps(changed))})
            return changed

    def remove(self, plural: str, name: str) -> Document | None:
        """Remove an object, and tell who watches."""
        with self._lock:
            gone = self.objects.pop((plural, name), None)
            if gone:
                self._tell(plural, {"type": "DELETED", "object": gone})
        if gone:
            self.deleted(plural, gone)
        return gone

    def end(self, plural: str, name: str, kind: str, reason: str = "", message: str = "") -> None:
        """Give a workload its last condition."""
        with self._lock:
            if workload := self.objects.get((plural, name)):
                condition = {"type": kind, "status": "True", "reason": reason, "message": message}
                self.put(plural, workload | {"status": {"conditions": [condition]}})

    def warn(self, name: str, reason: str, message: str) -> None:
        """Add an event about a pod or a workload."""
        about = {"kind": "Job", "name": name}
        metadata = {"name": f"{name}.{len(self.objects)}"}
        event = {"involvedObject": about, "reason": reason, "message": message, "type": "Warning"}
        self.put("events", {"metadata": metadata, **event})

    def hang_up(self) -> None:
        """Close all watches, as a server does that is restarted."""
        with self._lock:
            for _, watch in self._watches:
                watch.put(None)

    def forget(self) -> None:
        """Know no changes any more before now: whoever asks for them is answered that they are gone."""
        self._oldest = self._version

    def of(self, plural: str, labels: str = "", fields: str = "") -> list[Document]:
        """Objects that selectors choose."""
        wanted = dict(pair.split("=") for pair in labels.split(",") if pair)
        names = [pair.removeprefix("metadata.name=") for pair in fields.split(",") if pair.startswith("metadata.name=")]
        with self._lock:
            return [
                one
                for (kind, name), one in self.objects.items()
                if kind == plural
                and wanted.items() <= one["metadata"].get("labels", {}).items()
                and (not names or name in names)
            ]

    def watched(self, plural: str, since: int, seconds: float) -> Iterator[Document]:
        """Changes from now on; what happened since a version that is too old is gone."""
        if since < self._oldest:
            yield {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
            return
        watch: queue.Queue[Document | None] = queue.Queue()
        with self._lock:
            self._watches.append((plural, watch))
            for one in self.of(plural):
                if int(one["metadata"]["resourceVersion"]) > since:
                    watch.put({"type": "MODIFIED", "object": one})
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                change = watch.get(timeout=left)
            except queue.Empty:
                return
            if change is None:
                return
            yield change

    def _tell(self, plural: str, change: Document) -> None:
        for kind, watch in self._watches:
            if kind == plural:
                watch.put(change)


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for the acknowledgement of its head

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # whoever watched has seen enough
            self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if url.path.rstrip("/") == "/version":
            return self._send(200, {"major": "1", "minor": "34", **dict.fromkeys(_VERSION, "")})
        if proxied := _PROXY.fullmatch(url.path):
            return self._proxy(unquote(proxied["name"]), proxied["path"])
        found = _PATH.fullmatch(url.path)
        if not found:
            return self._send(404, {"message": f"no such path {url.path}"})
        plural, name = found["plural"], found["name"]
        asked = "watch" if query.get("watch") in ("true", "True", "1") else method
        self.api.asked.append((asked, plural))
        verb = _VERBS.get(asked, "get" if name else "list")
        self.api.used.add((found["group"] or "", f"{plural}{found['log'] or ''}", verb))
        if faults := self.api.faults[asked, plural]:
            fault = faults.pop(0)
            return self._drop() if fault == DROP else self._send(fault, {"message": "a fault"})
        if refusal := self.api.refusals.get((asked, plural)):
            return self._send(403, {"message": refusal, "reason": "Forbidden"})
        if asked == "watch":
            return self._watch(plural, query)
        if found["log"]:
            return self._log(name)
        return {"GET": self._get, "POST": self._post, "DELETE": self._delete}[method](plural, name, query, body)

    def _get(self, plural: str, name: str | None, query: Document, _: bytes) -> None:
        if name is None:
            items = self.api.of(plural, query.get("labelSelector", ""), query.get("fieldSelector", ""))
            return self._send(200, {"items": items, "metadata": {"resourceVersion": "1"}})
        one = self.api.objects.get((plural, name))
        return self._send(200, one) if one else self._send(404, {"message": f"{plural} {name} not found"})

    def _post(self, plural: str, _: str | None, __: Document, body: bytes) -> None:
        made = json.loads(body)
        if plural == "subjectaccessreviews":
            return self._send(201, made | {"status": {"allowed": self.api.allows(made["spec"])}})
        if (plural, made["metadata"]["name"]) in self.api.objects:
            return self._send(409, {"message": "already exists"})
        self.api.put(plural, made)
        self.api.created(plural, made)
        return self._send(201, made)

    def _delete(self, plural: str, name: str | None, _: Document, __: bytes) -> None:
        gone = self.api.remove(plural, str(name))
        return self._send(200, gone) if gone else self._send(404, {"message": "not found"})

    def _proxy(self, name: str, path: str) -> None:
        """Ask a service's pod, by the host and path that we are asked by, but with no word of who asks."""
        if refusal := self.api.refusals.get(("GET", "services/proxy")):
            return self._send(403, {"kind": "Status", "message": refusal, "reason": "Forbidden"})
        if not (address := self.api.services.get(name)):
            return self._send(404, {"kind": "Status", "message": f"services {name} not found"})
        connection = http.client.HTTPConnection(address, timeout=_PROXY_S)
        try:
            connection.request("GET", path, headers={"Host": self.headers["Host"]})
            answer = connection.getresponse()
            return self._send_raw(answer.status, answer.headers["Content-Type"], answer.read())
        except OSError as error:
            return self._send(503, {"kind": "Status", "message": f"error trying to reach service: {error}"})
        finally:
            connection.close()

    def _watch(self, plural: str, query: Document) -> None:
        self._begin()
        name = query.get("fieldSelector", "").removeprefix("metadata.name=")
        seconds = float(query.get("timeoutSeconds", 30))
        for change in self.api.watched(plural, int(query.get("resourceVersion") or 0), seconds):
            if change["type"] == "ERROR" or not name or change["object"]["metadata"]["name"] == name:
                self._chunk(json.dumps(change) + "\n")
        self._chunk("")

    def _log(self, name: str) -> None:
        """The lines so far, and all others until the pod has ended."""
        self._begin()
        sent = 0
        while True:
            ended = self.api.objects.get(("pods", name), {"status": {"phase": "Failed"}})["status"]["phase"]
            lines = self.api.logs[name][sent:]
            for line in lines:
                self._chunk(line + "\n")
            sent += len(lines)
            if ended in ("Succeeded", "Failed") and not lines:
                break
            time.sleep(0.05)
        self._chunk("")

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.close()

    def _send(self, status: int, answer: Document) -> None:
        self._send_raw(status, "application/json", json.dumps(answer).encode())

    def _send_raw(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

"""How the tests' Kubernetes API server reads requests and writes answers."""

import contextlib
import http.client
import json
import re
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from tests.launch.api_server import ApiServer

Document = dict[str, Any]
NAMESPACE = "lingraft"
_VERSION = ("gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform")
DROP = -1
"""A fault: the connection is closed without an answer."""
_GROUP = r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)"
_PATH = re.compile(rf"{_GROUP}(?:/namespaces/{NAMESPACE}(?=/))?/(?P<plural>\w+)(?:/(?P<name>[^/]+))?(?P<log>/log)?")
_PROXY = re.compile(rf"/api/v1/namespaces/{NAMESPACE}/services/(?P<name>[^/]+)/proxy(?P<path>/.*)")
_PROXY_S = 30
_VERBS = {"POST": "create", "PUT": "update", "DELETE": "delete", "watch": "watch"}


class Handler(BaseHTTPRequestHandler):
    """Of one connection; `api` is set by a class of the server's own."""

    api: "ApiServer"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for the acknowledgement of its head

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # whoever watched has seen enough
            self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

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
            return self._log(name, query)
        answers = {"GET": self._get, "POST": self._post, "PUT": self._put, "DELETE": self._delete}
        return answers[method](plural, name, query, body)

    def _get(self, plural: str, name: str | None, query: Document, _: bytes) -> None:
        if name is None:
            items = self.api.of(plural, query.get("labelSelector", ""), query.get("fieldSelector", ""))
            return self._send(200, {"items": items, "metadata": {"resourceVersion": "1"}})
        one = self.api.objects.get((plural, name))
        return self._send(200, one) if one else self._send(404, {"message": f"{plural} {name} not found"})

    def _post(self, plural: str, _: str | None, __: Document, body: bytes) -> None:
        made = json.loads(body)
        if plural in ("subjectaccessreviews", "selfsubjectaccessreviews"):
            return self._send(201, made | {"status": {"allowed": self.api.allows(made["spec"])}})
        if (plural, made["metadata"]["name"]) in self.api.objects:
            return self._send(409, {"message": "already exists"})
        self.api.put(plural, made)
        self.api.created(plural, made)
        return self._send(201, made)

    def _put(self, plural: str, name: str | None, _: Document, body: bytes) -> None:
        """Replace an object whose version is the one that the client has read."""
        changed, known = json.loads(body), self.api.objects.get((plural, str(name)))
        if known is None:
            return self._send(404, {"message": "not found"})
        if changed["metadata"].get("resourceVersion") != known["metadata"]["resourceVersion"]:
            return self._send(409, {"message": "the object has been modified", "reason": "Conflict"})
        self.api.put(plural, changed)
        self.api.created(plural, changed)
        return self._send(200, changed)

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

    def _log(self, name: str, query: Document) -> None:
        """The lines so far, and, for those who follow, all others until the pod has ended."""
        if query.get("follow") not in ("true", "True"):
            return self._send_raw(200, "text/plain", "\n".join(self.api.logs[name]).encode())
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

"""How the tests' Kubernetes API server reads requests and writes answers."""

import contextlib
import http
import json
import re
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.steps.launch.api_kinds import KINDS, NAMESPACE, Document, RefusalError

if TYPE_CHECKING:
    from tests.steps.launch.api_server import ApiServer

DROP = -1
"""A fault: the connection is closed without an answer."""
_GROUP = r"/(?:api/v1|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
_SPACE = rf"(?P<namespace>/namespaces/{NAMESPACE}(?=/))?"
_PATH = re.compile(rf"{_GROUP}{_SPACE}/(?P<plural>\w+)(?:/(?P<name>[^/]+))?(?P<log>/log)?")
_PARAMETERS = {"labelSelector", "fieldSelector", "propagationPolicy", "container", "follow", "previous", "tailLines"}
"""All that requests may say here: nothing watches, asks for a version, or asks for a list in parts."""
_TRUE = ("true", "True")
_VERBS = {"POST": "create", "PUT": "update", "DELETE": "delete"}


class UnknownPathError(Exception):
    """Where a path leads nowhere, the server says so in plain words, without a Status."""


class Handler(BaseHTTPRequestHandler):
    """Of one connection; `api` is set by a class of the server's own."""

    api: "ApiServer"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for the acknowledgement of its head

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # whoever follows a log has seen enough
            self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        try:
            self._do(method, self.rfile.read(int(self.headers.get("Content-Length", 0))))
        except RefusalError as refusal:
            self._send(refusal.code, refusal.status)
        except UnknownPathError:
            self._send_raw(404, "text/plain", b"404 page not found\n")

    def _do(self, method: str, body: bytes) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        self._require_token()
        found = _known(url.path)
        plural, name = found["plural"], found["name"]
        if unknown := query.keys() - _PARAMETERS:
            raise RefusalError(400, f"the tests' server does not serve {', '.join(sorted(unknown))}")
        if body and self.headers.get("Content-Type") != "application/json":
            raise RefusalError(415, "the body of the request was in an unknown format")
        self.api.asked.append((method, plural))
        verb = _VERBS.get(method, "get" if name else "list")
        self.api.used.add((found["group"] or "", f"{plural}{found['log'] or ''}", verb))
        if faults := self.api.faults[method, plural]:
            fault = faults.pop(0)
            if fault == DROP:
                return self._drop()
            raise RefusalError(fault, "a fault")
        if refusal := self.api.refusals.get((method, plural)):
            raise RefusalError(403, refusal, group=found["group"] or "", kind=plural)
        if found["log"]:
            return self._log(name, query)
        answers = {"GET": self._get, "POST": self._post, "PUT": self._put, "DELETE": self._delete}
        return answers[method](plural, name, query, body)

    def _require_token(self) -> None:
        """Refuse whoever has no token that is known.

        Raises:
            RefusalError: the token is none, or an old one.
        """
        token = self.headers.get("Authorization", "").partition(" ")[2]
        if self.api.tokens is not None and token not in self.api.tokens:
            raise RefusalError(401, "Unauthorized")

    def _get(self, plural: str, name: str | None, query: Document, _: bytes) -> None:
        """One, or a list; of a list's items only those of custom resources say their kind."""
        if name is not None:
            return self._send(200, self.api.read(plural, name))
        kind = KINDS[plural]
        items = self.api.of(plural, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        for item in items if kind.is_built_in else ():
            del item["kind"], item["apiVersion"]
        what = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version}
        metadata = {"resourceVersion": self.api.version} | ({} if kind.is_built_in else {"continue": ""})
        return self._send(200, what | {"metadata": metadata, "items": items})

    def _post(self, plural: str, _: str | None, __: Document, body: bytes) -> None:
        self._send(201, self.api.create(plural, json.loads(body)))

    def _put(self, plural: str, name: str | None, _: Document, body: bytes) -> None:
        self._send(200, self.api.replace(plural, str(name), json.loads(body)))

    def _delete(self, plural: str, name: str | None, query: Document, _: bytes) -> None:
        if query.get("propagationPolicy") != "Background":
            raise RefusalError(400, "the tests' server deletes what depends on an object, too")
        self._send(200, self.api.delete(plural, str(name)))

    def _log(self, name: str, query: Document) -> None:
        """The lines so far, and, for those who follow, all others until the pod has ended."""
        _require_log(self.api.read("pods", name), query.get("container"), query.get("previous") in _TRUE)
        if reason := self.api.silent_kubelets.get(name):
            raise RefusalError(500, f'Get "https://node:10250/containerLogs/{NAMESPACE}/{name}": {reason}')
        if query.get("follow") not in _TRUE:
            lines = self.api.logs[name]
            wanted = lines[max(0, len(lines) - int(query.get("tailLines", len(lines)))) :]
            return self._send_raw(200, "text/plain", "\n".join(wanted).encode())
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
        if status == http.HTTPStatus.TOO_MANY_REQUESTS:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _known(path: str) -> re.Match[str]:
    """A path of a kind that there is, in the namespace if the kind has one.

    Raises:
        RefusalError: there is no such kind.
        UnknownPathError: there is no such group of kinds either.
    """
    found = _PATH.fullmatch(path)
    kind = KINDS.get(found["plural"]) if found else None
    if not found or (found["group"] or "") not in {each.group for each in KINDS.values()}:
        raise UnknownPathError
    if not kind or (kind.group, kind.version) != (found["group"] or "", found["version"] or "v1"):
        raise RefusalError(404, "the server could not find the requested resource")
    if not found["namespace"]:
        raise RefusalError(403, f"{found['plural']} is forbidden: cannot be asked for at the cluster scope")
    return found


def _require_log(pod: Document, container: str | None, previous: bool) -> None:
    """Refuse to read a log that is not there.

    Raises:
        RefusalError: a pod has no such container, or it has never run.
    """
    name, spec, status = pod["metadata"]["name"], pod.get("spec", {}), pod.get("status", {})
    statuses = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    there_are = {each["name"] for each in (*spec.get("initContainers", ()), *spec.get("containers", ()), *statuses)}
    if container is None and len(there_are) > 1:
        raise RefusalError(
            400, f"a container name must be specified for pod {name}, choose one of: {sorted(there_are)}"
        )
    if container is not None and container not in there_are:
        raise RefusalError(400, f"container {container} is not valid for pod {name}")
    if not spec.get("nodeName"):
        raise RefusalError(400, f"pod {name} does not have a host assigned")
    [state, *_] = [each for each in statuses if each["name"] == container] or [{"state": {"waiting": {}}}]
    if previous and not state.get("restartCount"):
        raise RefusalError(400, f'previous terminated container "{container}" in pod "{name}" not found')
    if "waiting" in state["state"] and not state.get("restartCount"):
        why = state["state"]["waiting"].get("reason", "ContainerCreating")
        raise RefusalError(400, f'container "{container}" in pod "{name}" is waiting to start: {why}')

"""A Kubernetes API server with state, as much of it as launching asks, and with faults.

It is small, but what stands behind it is real: a pod is a process of this machine, started as the manifest says.
"""

import json
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import yaml

from tests.steps.launch.api_handler import DROP, Handler
from tests.steps.launch.api_kinds import (
    KINDS,
    NAMESPACE,
    Document,
    RefusalError,
    admit,
    chosen,
    completed,
    fill_in,
    now,
    require_same,
)

__all__ = ["DROP", "NAMESPACE", "ApiServer"]


class ApiServer:
    """What the server has, what it was asked, and how it fails."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Document] = {}
        self.logs: dict[str, list[str]] = defaultdict(list)
        """Lines by pod."""
        self.asked: list[tuple[str, str]] = []
        self.faults: dict[tuple[str, str], list[int]] = defaultdict(list)
        """Statuses, each answered once, to a method and a plural."""
        self.refusals: dict[tuple[str, str], str] = {}
        """Messages of refusals with status 403."""
        self.created: Callable[[str, Document], None] = lambda _plural, _made: None
        """What the cluster does with what is created."""
        self.deleted: Callable[[str, Document], None] = lambda _plural, _gone: None
        self.tokens: set[str] | None = None
        """Tokens of those who may ask; None: anybody may."""
        self.silent_kubelets: dict[str, str] = {}
        """Errors of the kubelets that are asked for logs, by pod."""
        self.used: set[tuple[str, str, str]] = set()
        """Rights that were needed for what was asked: group, resource and verb."""
        self._version = 1
        self._lock = threading.RLock()

    @contextmanager
    def serving(self, folder: Path) -> Iterator[Path]:
        """A kubectl configuration for it."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"api": self}))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "us", "namespace": NAMESPACE}}],
            "clusters": [{"name": "tests", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "us", "user": {"tokenFile": str(folder / "token")}}],
        }
        (folder / "token").write_text("first", encoding="utf-8")
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        try:
            yield path
        finally:
            server.shutdown()
            server.server_close()

    @property
    def version(self) -> str:
        """Of everything that is there now."""
        return str(self._version)

    def put(self, plural: str, changed: Document) -> Document:
        """Store an object as the cluster's own controllers do."""
        with self._lock:
            name = changed["metadata"]["name"]
            known = self.objects.get((plural, name))
            self.objects[plural, name] = completed(plural, changed, known)
            self._count(changed)
            return changed

    def create(self, plural: str, made: Document) -> Document:
        """Store what a client creates; what it gets back knows nothing yet of what the cluster makes of it.

        Raises:
            RefusalError: it cannot be created.
        """
        with self._lock:
            admit(plural, made)
            name = made["metadata"]["name"]
            if (plural, name) in self.objects:
                raise RefusalError.about(409, plural, name, " already exists", "AlreadyExists")
            completed(plural, made, None)
            if plural == "jobs":
                fill_in(made)
            answer = _copy(self.put(plural, made))
        self.created(plural, made)
        return answer

    def replace(self, plural: str, name: str, changed: Document) -> Document:
        """Store what a client updates, but for its status, which is for controllers.

        Raises:
            RefusalError: it cannot be updated so.
        """
        with self._lock:
            known = self.read(plural, name)
            require_same(plural, changed, known)
            changed = {key: value for key, value in changed.items() if key != "status"}
            changed |= {"status": known["status"]} if "status" in known else {}
            older = known["metadata"]["generation"]
            changed["metadata"]["generation"] = older + (changed.get("spec") != known.get("spec"))
            completed(plural, changed, known)
            if changed == known:
                return _copy(known)  # an update that changes nothing makes no version
            answer = _copy(self.put(plural, changed))
        self.created(plural, changed)
        return answer

    def read(self, plural: str, name: str) -> Document:
        """An object.

        Raises:
            RefusalError: there is none.
        """
        if known := self.objects.get((plural, name)):
            return known
        raise RefusalError.about(404, plural, name, " not found")

    def delete(self, plural: str, name: str) -> Document:
        """Remove what a client deletes, and what depends on it.

        Raises:
            RefusalError: there is none.
        """
        kind, metadata = KINDS[plural], self.read(plural, name)["metadata"]
        self.remove(plural, name)
        details = {"name": name, "group": kind.group, "kind": plural, "uid": metadata["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def remove(self, plural: str, name: str) -> None:
        """Remove an object, and tell who watches."""
        with self._lock:
            gone = self.objects.pop((plural, name), None)
            if gone:
                self._count(gone)
        if gone:
            self.deleted(plural, gone)

    def end(self, plural: str, name: str, kind: str, reason: str = "", message: str = "") -> None:
        """Give a workload its last condition; a Job has one before it that says what will be."""
        coming = {"Failed": "FailureTarget", "Complete": "SuccessCriteriaMet"}
        facts = {"status": "True", "reason": reason, "message": message}
        facts |= {"lastTransitionTime": now(), **({"lastProbeTime": now()} if plural == "jobs" else {})}
        conditions: list[Document] = []
        with self._lock:
            for each in (coming[kind], kind) if plural == "jobs" else (kind,):
                if workload := self.objects.get((plural, name)):
                    conditions = [*conditions, {"type": each, **facts}]
                    self.put(plural, workload | {"status": {"conditions": conditions}})

    def warn(self, name: str, reason: str, message: str, kind: str = "Job") -> None:
        """Add an event about a pod or a workload, as the scheduler does: without the times of older events."""
        about = {"kind": kind, "name": name, "namespace": NAMESPACE}
        metadata = {"name": f"{name}.{uuid.uuid4().hex[:16]}"}
        event = {"involvedObject": about, "reason": reason, "message": message, "type": "Warning"}
        times = {"eventTime": f"{now()[:-1]}.000000Z", "firstTimestamp": None, "lastTimestamp": None}
        reporter = {"reportingComponent": "default-scheduler", "reportingInstance": "one", "source": {}}
        self.put("events", {"metadata": metadata, **event, **times, **reporter})

    def of(self, plural: str, labels: str = "", fields: str = "") -> list[Document]:
        """Objects that selectors choose."""
        with self._lock:
            found = [one for (kind, _), one in self.objects.items() if kind == plural]
            return [_copy(one) for one in found if chosen(plural, one, labels, fields)]

    def _count(self, changed: Document) -> None:
        """Give an object its next version."""
        self._version += 1
        changed["metadata"]["resourceVersion"] = self.version


def _copy(one: Document) -> Document:
    copied: Document = json.loads(json.dumps(one))
    return copied

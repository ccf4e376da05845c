"""A Kubernetes API server with state and watches, as much of it as launching asks, and with faults.

It is small, but what stands behind it is real: a pod is a process of this machine, started as the manifest says.
"""

import json
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import yaml

from tests.launch.api_handler import DROP, NAMESPACE, Document, Handler

__all__ = ["DROP", "NAMESPACE", "ApiServer"]


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
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"api": self}))
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

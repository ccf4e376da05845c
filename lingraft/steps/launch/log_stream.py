"""The log of a step that runs on the cluster, and the cluster's warnings, printed here."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from kubernetes import client
from kubernetes.client.rest import ApiException

from lingraft.console import say
from lingraft.steps.launch.watch_job import UNREACHABLE
from lingraft.steps.launch.workload import WorkloadKind

_LAST_WORDS_S = 10.0


class LogStream:
    """Prints the log of a workload's main pod, and the cluster's warnings about its pods, each once."""

    def __init__(
        self, api: client.ApiClient, namespace: str, kind: WorkloadKind, name: str, every_s: float = 2.0
    ) -> None:
        """Start printing, in two threads.

        Args:
            api: client of the cluster's API.
            namespace: namespace of the workload.
            kind: kind of the workload.
            name: name of the workload.
            every_s: seconds between two requests.
        """
        self._core = client.CoreV1Api(api)
        self._namespace = namespace
        self._kind = kind
        self._name = name
        self._every_s = every_s
        self._ended = threading.Event()
        self._printed = 0
        self._warned: set[str] = set()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._log_often, self._warn_often)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Print the rest, and stop the threads."""
        self._ended.set()
        for thread in self._threads:
            thread.join(_LAST_WORDS_S)

    def pods(self) -> list[Any]:
        """Return all pods of the workload."""
        return list(self._core.list_namespaced_pod(self._namespace, label_selector=self._selector).items)

    @property
    def _selector(self) -> str:
        return self._kind.pods.format(name=self._name)

    def _log_often(self) -> None:
        while True:
            last = self._ended.is_set()
            with contextlib.suppress(ApiException, *UNREACHABLE):  # there is no pod yet, or no longer
                self._log()
            if last:
                return
            self._ended.wait(self._every_s)

    def _log(self) -> None:
        """Print the new lines; after a lost connection, the log is read from its start again."""
        found = self._core.list_namespaced_pod(self._namespace, label_selector=self._selector + self._kind.main_pod)
        for pod in found.items[:1]:
            log = self._core.read_namespaced_pod_log(
                pod.metadata.name, self._namespace, container=self._kind.container, follow=True, _preload_content=False
            )
            for number, line in enumerate(_lines(log)):
                if number >= self._printed:
                    print(line, flush=True)
                    self._printed = number + 1

    def _warn_often(self) -> None:
        last = False
        while not last:
            last = self._ended.wait(self._every_s)
            with contextlib.suppress(ApiException, *UNREACHABLE):
                self._warn()

    def _warn(self) -> None:
        for event in self._core.list_namespaced_event(self._namespace, field_selector="type=Warning").items:
            about = event.involved_object.name or ""
            words = f"{event.involved_object.kind} {about}: {event.reason}: {event.message}"
            if (about == self._name or about.startswith(f"{self._name}-")) and words not in self._warned:
                self._warned.add(words)
                say(words)


def _lines(log: Any) -> Iterator[str]:
    rest = b""
    for chunk in log.stream():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")

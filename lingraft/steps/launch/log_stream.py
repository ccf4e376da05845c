"""The log of a step that runs on the cluster, and the cluster's warnings, printed here."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kubernetes import client
from kubernetes.client.rest import ApiException

from lingraft.console import say
from lingraft.retry import poll
from lingraft.steps.launch.workload import UNREACHABLE, WorkloadKind

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
        self._threads = [
            threading.Thread(target=self._repeat, args=[show], daemon=True) for show in (self._log, self._warn)
        ]
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

    def _repeat(self, show: Callable[[], None]) -> None:
        """Show what is new again and again, and once more after the end."""
        for _ in itertools.chain(poll(self._every_s, ended=self._ended), [None]):
            with contextlib.suppress(ApiException, *UNREACHABLE):  # there is no pod yet, or no longer
                show()

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

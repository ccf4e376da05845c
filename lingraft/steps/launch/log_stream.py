"""The log of a step that runs on the cluster, and the cluster's warnings, printed here."""

import datetime
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kubernetes import client
from kubernetes.client.rest import ApiException

from lingraft.console import say
from lingraft.retry import poll
from lingraft.steps.launch.workload import REQUEST_S, UNREACHABLE, WorkloadKind, format_api_error, is_absent

_LAST_WORDS_S = 10.0
FAILURES_BEFORE_NOTE = 4
"""Failed requests in a row after which the log says so."""


class LogStream:
    """Prints the log of a workload's main pod, and the cluster's warnings about its pods, once for each reason."""

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
        self.warnings: dict[str, str] = {}
        """Latest warning about the workload and its pods by reason, such as 'FailedScheduling'."""
        shown = {f"the log of {name}": self._log, f"warnings about {name}": self._warn}
        self._threads = [threading.Thread(target=self._repeat, args=each, daemon=True) for each in shown.items()]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Print the rest, and stop the threads."""
        self._ended.set()
        for thread in self._threads:
            thread.join(_LAST_WORDS_S)

    def pods(self) -> list[Any]:
        """Return all pods of the workload."""
        found = self._core.list_namespaced_pod(
            self._namespace, label_selector=self.selector, _request_timeout=REQUEST_S
        )
        return list(found.items)

    @property
    def selector(self) -> str:
        """Label selector of the workload's pods."""
        return self._kind.pods.format(name=self._name)

    def _repeat(self, what: str, show: Callable[[], None]) -> None:
        """Show what is new again and again, and once more after the end; say so if that fails for a while."""
        failures = 0
        for _ in itertools.chain(poll(self._every_s, ended=self._ended), [None]):
            try:
                show()
                failures = 0
            except (ApiException, *UNREACHABLE) as error:
                failures += not is_absent(error)  # the pod may be gone
                if failures == FAILURES_BEFORE_NOTE:
                    say(f"{what} cannot be read, and the step goes on. Asking again: {format_api_error(error)}")

    def _log(self) -> None:
        """Print the new lines; after a lost connection, the log is read from its start again."""
        found = self._core.list_namespaced_pod(self._namespace, label_selector=self.selector + self._kind.main_pod)
        for pod in found.items[:1]:
            if pod.status.phase == "Pending":
                continue  # there is no log before the container has started
            log = self._core.read_namespaced_pod_log(
                pod.metadata.name, self._namespace, container=self._kind.container, follow=True, _preload_content=False
            )
            for number, line in enumerate(_lines(log)):
                if number >= self._printed:
                    print(line, flush=True)
                    self._printed = number + 1

    def _warn(self) -> None:
        found = self._core.list_namespaced_event(self._namespace, field_selector="type=Warning")
        for event in sorted(found.items, key=_time_of):
            about = event.involved_object.name or ""
            if about == self._name or about.startswith(f"{self._name}-"):
                words = f"{event.involved_object.kind} {about}: {event.reason}: {event.message}"
                if event.reason not in self.warnings:
                    say(words)
                self.warnings[event.reason] = words


def _time_of(event: Any) -> datetime.datetime:
    """Return when an event happened last; each of its times is left out by some components of Kubernetes."""
    time: datetime.datetime = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
    return time


def _lines(log: Any) -> Iterator[str]:
    rest = b""
    for chunk in log.stream():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")

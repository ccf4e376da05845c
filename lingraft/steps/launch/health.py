"""Checks of a launched workload: whether its pods start in time, and whether their nodes confirm their end."""

import contextlib
import datetime
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lingraft.console import say
from lingraft.errors import TrackingError

NOTE_TAG = "lingraft.waits_for"
"""Tag of the pipeline's tracking run: what a launched step waits for that only an operator can change. The name of its
workload follows, since steps of several languages share the run."""
_NOTE_EVERY_S = 60.0
_OVERDUE = datetime.timedelta(seconds=60)
"""Time after the grace period of a deleted pod, within which a node that works confirms its end."""
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
_USUAL_WAITS = {"ContainerCreating", "PodInitializing"}


class HealthCheck:
    """Checks a workload again and again: whether its pods start in time, and whether their nodes answer."""

    def __init__(self, name: str, nodes: int, start_limit_s: float, tracking_run: str | None) -> None:
        """Begin to count.

        Args:
            name: name of the workload.
            nodes: number of pods that run together.
            start_limit_s: seconds within which all of them must run, not counted while the workload is suspended.
            tracking_run: id of the run that is tagged with what an operator has to do, if the step is tracked.
        """
        self._name = name
        self._nodes = nodes
        self._start_limit_s = start_limit_s
        self._tracking_run = tracking_run
        self._since_s: float | None = time.monotonic()
        """Time from which on the workload has waited for its start; None after it."""
        self._was_suspended = False
        self._noted_s: float | None = None
        """Time of the last note about silent nodes; None if all answer."""

    def check(self, is_suspended: bool, pods: Sequence[Any], warnings: Mapping[str, str]) -> str | None:
        """Tell of nodes that do not answer, and return why the workload has not started in time; None if it may.

        Args:
            is_suspended: whether the workload is suspended, as Kueue keeps it until its queue has room.
            pods: pods of the workload, as the Kubernetes client returns them.
            warnings: latest warning of each kind about the workload and its pods.
        """
        self._note_silent_nodes(pods)
        if is_suspended and not self._was_suspended:
            say(f"{self._name} is suspended, and starts when its queue admits it")
        self._was_suspended = is_suspended
        if is_suspended:
            self._since_s = time.monotonic()
        elif sum(pod.status.phase not in (None, "Pending") for pod in pods) >= self._nodes:
            self._since_s = None
        if self._since_s is None or time.monotonic() - self._since_s < self._start_limit_s:
            return None
        causes = [*dict.fromkeys(waits_of(pods)), *warnings.values()] or ["Kubernetes names no reason"]
        return (
            f"{self._name} did not start within {self._start_limit_s:g} s, and was deleted: {'; '.join(causes)}. Mend "
            "that, or raise start_limit_s of its profile, and run the same again."
        )

    def close(self) -> None:
        """Remove the tag, if there is one."""
        if self._noted_s is not None:
            self._tag(None)

    def _note_silent_nodes(self, pods: Sequence[Any]) -> None:
        silent = [*_silent_nodes(pods, datetime.datetime.now(datetime.UTC))]
        if not silent:
            self.close()
            self._noted_s = None
        elif self._noted_s is None or time.monotonic() - self._noted_s >= _NOTE_EVERY_S:
            self._noted_s = time.monotonic()
            note = "; ".join(silent)
            say(note)
            self._tag(note)

    def _tag(self, note: str | None) -> None:
        """Set the tag of the tracking run, or remove it (None); a server that does not answer is not waited for."""
        if self._tracking_run:
            from lingraft.tracking import runs

            with contextlib.suppress(TrackingError):
                runs.tag_at_once(self._tracking_run, f"{NOTE_TAG}.{self._name}", note)


def waits_of(pods: Sequence[Any]) -> Iterator[str]:
    """Yield what pods and their containers wait for, by their own account; a node may be on its way."""
    for pod in pods:
        status = pod.status
        for condition in status.conditions or ():
            if condition.type == "PodScheduled" and condition.status != "True":
                yield _words(condition)
        for container in itertools.chain(status.init_container_statuses or (), status.container_statuses or ()):
            waiting = container.state.waiting if container.state else None
            if waiting and waiting.reason not in _USUAL_WAITS:
                yield _words(waiting)


def _silent_nodes(pods: Sequence[Any], now: datetime.datetime) -> Iterator[str]:
    """Yield which nodes do not confirm the end of a pod that was deleted, and what to do about each."""
    for pod in pods:
        due = pod.metadata.deletion_timestamp
        if not due or now < due + _OVERDUE or pod.status.phase in ("Succeeded", "Failed"):
            continue
        node = pod.spec.node_name
        why = "".join(f", {_words(each)}" for each in pod.status.conditions or () if each.type == "DisruptionTarget")
        yield (
            f"node {node} does not answer: pod {pod.metadata.name} is Terminating ({pod.status.phase}{why}) and was to "
            f"end by {due:%H:%M:%S} UTC. It may still write, so that no other is started. If the machine is off for "
            f"good: kubectl delete node {node}. If it will come back: kubectl taint nodes {node} {_OUT_OF_SERVICE}"
        )


def _words(condition: Any) -> str:
    return ": ".join(filter(None, (condition.reason, condition.message)))

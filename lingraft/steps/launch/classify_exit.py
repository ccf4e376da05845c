"""Classify the end of a step on Kubernetes without an answer: through its own fault, or that of its node."""

import datetime
from collections.abc import Sequence
from typing import Any

from lingraft.signals import EXIT_CODES
from lingraft.steps.launch.calls import AttemptResult, out_of_memory
from lingraft.steps.launch.workload import DELETED, WorkloadState

_OUT_OF_MEMORY = "OOMKilled"
_KILLED_EXIT_CODES = {137, 143, *EXIT_CODES.values()}
"""Exit codes of processes that were killed or asked to stop, by somebody other than the launcher."""
_LATE = datetime.datetime.max.replace(tzinfo=datetime.UTC)
_NODE_REASONS = {"NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "NodeAffinity"}
"""Reasons of the kubelet for ending pods that did nothing wrong. Eviction for lack of disk is the pod's own fault."""


def classify_exit(name: str, state: WorkloadState, pods: Sequence[Any], memory: str) -> AttemptResult:
    """Return the result of an attempt whose workload ended without an answer.

    Args:
        name: name of the workload.
        state: final state of the workload.
        pods: pods of the workload, as the Kubernetes client returns them; those of a lost node may be missing.
        memory: memory limit of its profile.
    """
    if killed_for_memory(pods):
        return out_of_memory(name, memory)
    if state.reason == DELETED:
        return AttemptResult(failed=f"{name} was deleted by somebody. Run the same again to go on.")
    disrupted = [words for pod in pods if (words := _disruption(pod))]
    if disrupted or not pods:
        return AttemptResult(vanished=f"{name} lost its node ({'; '.join(disrupted) or 'its pods are gone'})")
    code = _first_exit_code(pods)
    if code in _KILLED_EXIT_CODES:
        return AttemptResult(vanished=f"{name} was killed (exit code {code})")
    what = "" if code is None else f", exit code {code}"
    return AttemptResult(failed=f"{name} failed ({state.reason}: {state.message}{what}), and its log says why")


def killed_for_memory(pods: Sequence[Any]) -> bool:
    """Return whether the kernel has killed a container of the pods for its memory."""
    return any(end.reason == _OUT_OF_MEMORY for pod in pods for end in _ends_of(pod))


def _first_exit_code(pods: Sequence[Any]) -> int | None:
    """Return the exit code of the pod that failed first: where several train together, the others are killed later."""
    failed = [end for pod in pods for end in _ends_of(pod) if end.exit_code]
    return min(failed, key=lambda end: end.finished_at or _LATE).exit_code if failed else None


def _ends_of(pod: Any) -> list[Any]:
    statuses = pod.status.container_statuses or ()
    return [status.state.terminated for status in statuses if status.state and status.state.terminated]


def _disruption(pod: Any) -> str:
    """Return why a pod was ended through no fault of its own; empty if that was not so."""
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return f"{condition.reason}: {condition.message}"
    return f"{pod.status.reason}: {pod.status.message}" if pod.status.reason in _NODE_REASONS else ""

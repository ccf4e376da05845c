"""Why a step that ran on Kubernetes ended without an answer: by its own fault, or by that of its node."""

import datetime
from collections.abc import Sequence
from typing import Any

from lingraft.signals import EXIT_CODES
from lingraft.steps.launch.calls import AttemptResult, out_of_memory
from lingraft.steps.launch.workload import DELETED, WorkloadState

_OUT_OF_MEMORY = "OOMKilled"
_KILLED_EXIT_CODES = {137, 143, *EXIT_CODES.values()}
"""Exit codes of who was killed or asked to stop, by somebody else than its launcher."""
_LATE = datetime.datetime.max.replace(tzinfo=datetime.UTC)
_NODE_REASONS = {"NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "NodeAffinity"}
"""What the kubelet says of pods that it ends for its own sake. Eviction for lack of disk is the pod's own fault."""


def classify_exit(name: str, state: WorkloadState, pods: Sequence[Any], memory: str) -> AttemptResult:
    """The end of a workload.

    Args:
        name: of the workload.
        state: in which it ended.
        pods: of it, as the Kubernetes client has them; those of a node that is gone may be gone too.
        memory: that its profile gave it.
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
    """Whether the kernel has killed one of them for its memory."""
    return any(end.reason == _OUT_OF_MEMORY for pod in pods for end in _ends_of(pod))


def _first_exit_code(pods: Sequence[Any]) -> int | None:
    """Of the pod that failed first: where several train together, the others are killed after it."""
    failed = [end for pod in pods for end in _ends_of(pod) if end.exit_code]
    return min(failed, key=lambda end: end.finished_at or _LATE).exit_code if failed else None


def _ends_of(pod: Any) -> list[Any]:
    statuses = pod.status.container_statuses or ()
    return [status.state.terminated for status in statuses if status.state and status.state.terminated]


def _disruption(pod: Any) -> str:
    """Why a pod went that had done nothing wrong; empty if it went for another reason."""
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return f"{condition.reason}: {condition.message}"
    return f"{pod.status.reason}: {pod.status.message}" if pod.status.reason in _NODE_REASONS else ""

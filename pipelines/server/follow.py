"""Follow a run to its end: print the states of its steps, and why it failed if it did."""

import re
import time
from collections.abc import Callable, Iterator

import kfp_server_api as kfp

from lingraft.errors import LingraftError
from lingraft.retry import poll, retry
from pipelines.server.connection import Connection, server_errors

DONE = "SUCCEEDED"
_ENDS = {DONE, "FAILED", "CANCELED", "SKIPPED"}
"""Final states of a run. KFP's own function does not know CANCELED, and would wait for ever."""
_REPORTED = {"RUNNING", *_ENDS}
_SERVERS_OWN = re.compile(r"root|executor|(exit-handler|for-loop)-\d+|.+-driver")
"""Nodes of a workflow that stand for all of its steps or a group of them, for the container in a step, and for what
prepares either. A group fails with a step, and has no log."""
_LOOK_EVERY_S = 5.0
_PATIENCE_S = 600.0


class RunFailedError(LingraftError):
    """A run on the server failed or was cancelled; the message names the failed steps and the reasons."""


def follow(
    connection: Connection,
    client: kfp.ApiClient,
    run_id: str,
    tell: Callable[[str], None],
    patience_s: float = _PATIENCE_S,
) -> None:
    """Wait until a run has succeeded, and report the states of its steps meanwhile.

    Args:
        connection: connection to the server.
        client: client of its API.
        run_id: id of the run.
        tell: function that gets each line.
        patience_s: seconds that the server may be down; the run itself goes on.

    Raises:
        RunFailedError: the run failed, or was cancelled.
        ServerError: the server refused, or was down for too long.
    """
    started = time.monotonic()
    told = dict[str, str]()
    for run in _poll(connection, client, run_id, patience_s):
        for task in _tasks(run):
            if task.state in _REPORTED and told.get(task.task_id) != task.state:
                told[task.task_id] = task.state
                tell(f"[{time.monotonic() - started:5.0f} s] {task.display_name}: {task.state.lower()}")
        if run.state in _ENDS:
            _require_done(connection, run)
            return


def _poll(connection: Connection, client: kfp.ApiClient, run_id: str, patience_s: float) -> Iterator[kfp.V2beta1Run]:
    """Yield the run again and again; a server that is down for a while is polled on."""

    def look() -> kfp.V2beta1Run:
        with server_errors(connection, f"look at run {run_id}"):
            return kfp.RunServiceApi(client).run_service_get_run(run_id)

    for _ in poll(_LOOK_EVERY_S):
        yield retry(look, _may_heal, patience_s, before_pause=lambda *_: None, last_pause_s=_LOOK_EVERY_S)


def _may_heal(error: Exception) -> bool:
    """Whether the error lies with the server, so that the request may succeed later."""
    cause = error.__cause__
    return not isinstance(cause, kfp.ApiException) or cause.status is None or cause.status >= 500


def _tasks(run: kfp.V2beta1Run) -> list[kfp.V2beta1PipelineTaskDetail]:
    """Return the steps in order of their start, without the workflow's other nodes."""
    details = (run.run_details.task_details or []) if run.run_details else []
    workflow = _workflow(details)
    steps = [
        task for task in details if task.display_name != workflow and not _SERVERS_OWN.fullmatch(task.display_name)
    ]
    return sorted(steps, key=lambda task: (task.start_time is None, str(task.start_time), task.task_id))


def _workflow(details: list[kfp.V2beta1PipelineTaskDetail]) -> str:
    """Return the name of the workflow's own node: the longest common prefix of all pods; empty if there is none."""
    pods = [child.pod_name for task in details for child in task.child_tasks or [] if child.pod_name]
    names = [task.display_name for task in details]
    return max(
        (name for name in names if pods and all(pod.startswith(f"{name}-") for pod in pods)), key=len, default=""
    )


def _require_done(connection: Connection, run: kfp.V2beta1Run) -> None:
    if run.state == DONE:
        return
    reasons = [f"{task.display_name}: {_why(task.error)}" for task in _tasks(run) if task.state == "FAILED"]
    reasons = reasons or [_why(run.error)]
    raise RunFailedError(
        f"run {run.display_name} ended as {run.state.lower()}. {' '.join(reasons)} Logs: {connection.link(run.run_id)}"
    )


def _why(error: kfp.GoogleRpcStatus | None) -> str:
    """Return the reason of a failure; servers up to 2.17 give none (kubeflow/pipelines issue 14007)."""
    return error.message if error and error.message else "the server gives no reason; its pod's log does."

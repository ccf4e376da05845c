"""The launcher: run a step in a child process or on Kubernetes, with retries."""

import functools
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from lingraft.artifacts.failures import EXPECTED_ERRORS, format_error, require_inputs_made, write_failure
from lingraft.config.cluster import StageName
from lingraft.console import say
from lingraft.jobs.launchable import Launchable, Role
from lingraft.retry import backoff
from lingraft.steps.launch import child
from lingraft.steps.launch.calls import AttemptResult, Call, LaunchError, LostError

RETRIES = "LINGRAFT_RETRIES"
"""Environment variable: number of retries of steps that were lost or failed by a transient error."""
_RETRIES = 3
PAUSE_S = 10.0
"""Seconds before the retry of a transient error; a lost step is restarted at once."""

STAGE = "LINGRAFT_LAUNCH"
"""Environment variable: the stage by whose profile the step is launched on Kubernetes; unset, it is a child process."""


def run(
    work: Launchable,
    tracking_run: str | Path | None = None,
    isolated: bool = False,
    after: Sequence[str] = (),
    pause_s: float = PAUSE_S,
) -> Any:
    """Run some work in a process or pod that may be killed, and return its result.

    Args:
        work: of a class in `lingraft.steps.table.STEPS`.
        tracking_run: file with the id of the pipeline's tracking run, for work that is tracked.
        isolated: whether the work belongs to one language of several, so that its failure is a value: the reason goes
            to its outputs, other languages go on, and steps that read these outputs fail for the same reason. An error
            of work that handles failures itself is a bug, and ends the pipeline.
        after: outputs of steps that must have succeeded, although this step does not read them.
        pause_s: seconds before the retry of a transient error.

    Raises:
        LaunchError: the step failed, or was lost too often, and is not isolated.
        InputFailedError: an input failed, and the step is not isolated.
        Interruption: this process was asked to stop, and passed that on to the step.
    """
    work = work.without_empty_inputs()
    try:
        if not work.records_failure:
            require_inputs_made([*work.all_folders(Role.INPUT), *map(Path, after)])
        method = _launch_method(work, Path(tracking_run) if tracking_run else None)
        for number, next_pause_s in enumerate(backoff(first_s=pause_s, last_s=pause_s), start=1):
            ended = method.attempt()
            if ended.reason is None:
                method.finish()
                return ended.answer.result if ended.answer else None
            _prepare_retry(work, ended, number, method.retries)
            time.sleep(0.0 if ended.vanished else next_pause_s)
    except EXPECTED_ERRORS as error:
        if not isolated or (work.records_failure and not isinstance(error, LostError)):
            raise
        say(f"failed: {format_error(error)}")
        for out in work.all_folders(Role.OUTPUT):
            write_failure(out, format_error(error))
        return work.failed_result


class _LaunchMethod(NamedTuple):
    attempt: Callable[[], AttemptResult]
    retries: int
    finish: Callable[[], object]
    """Cleans up after success."""


def _launch_method(work: Launchable, run: Path | None) -> _LaunchMethod:
    """Return how the work is attempted: on Kubernetes if the stage says so, else in a child process."""
    if stage := os.environ.get(STAGE):
        from lingraft.steps import table
        from lingraft.steps.launch.handover import Handover
        from lingraft.steps.launch.on_cluster import ClusterLauncher

        if not table.is_done(work):
            cluster = work.recipe.cluster
            profile = cluster.profile_of(TypeAdapter(StageName).validate_python(stage))
            handover = Handover(Path(cluster.storage_path) / "launched", work, run)
            return _LaunchMethod(ClusterLauncher(cluster, profile, handover).attempt, profile.retries, handover.clear)
    attempt = functools.partial(child.attempt, Call.of(work, run))
    return _LaunchMethod(attempt, int(os.environ.get(RETRIES, _RETRIES)), finish=lambda: None)


def _prepare_retry(work: Launchable, ended: AttemptResult, number: int, retries: int) -> None:
    """Remove incomplete outputs of an attempt, whose checkpoints are elsewhere.

    Raises:
        LaunchError: no other attempt may succeed, or there were too many.
    """
    if ended.heals:
        for out in work.all_folders(Role.OUTPUT):
            shutil.rmtree(out, ignore_errors=True)
    if not ended.heals or number > retries:
        which = f" (attempt {number} of {retries + 1})" if ended.heals else ""
        raise (LaunchError if ended.answer else LostError)(f"{ended.reason}{which}")
    say(f"{ended.reason}: attempt {number + 1} of {retries + 1}")

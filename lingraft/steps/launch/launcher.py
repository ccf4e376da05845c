"""The launcher: run a step in a child process or on Kubernetes, with retries."""

import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from lingraft.artifacts.failures import EXPECTED_ERRORS, format_error, require_inputs_made, write_failure
from lingraft.config.cluster import StageName
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.steps.launch import child
from lingraft.steps.launch.calls import AttemptResult, Call, Folders, LaunchError, LostError, as_list, is_done

RETRIES = "LINGRAFT_RETRIES"
"""Environment variable: number of retries of steps that were lost or failed by a transient error."""
_RETRIES = 3
PAUSE_S = 10.0
"""Seconds before the retry of a transient error; a lost step is restarted at once."""

STAGE = "LINGRAFT_LAUNCH"
"""Environment variable: the stage by whose profile the step is launched on Kubernetes; unset, it is a child process."""


def run(
    step: str,
    inputs: Folders,
    outputs: Folders,
    isolated: bool = False,
    otherwise: Any = None,
    bears_failed_inputs: bool = False,
    after: Sequence[str] = (),
    pause_s: float = PAUSE_S,
    **values: Any,
) -> Any:
    """Run a step in a process or pod that may be killed, and return its result.

    Args:
        step: module and function of `lingraft.steps`.
        inputs: files and folders that the step reads, by parameter; a list where it takes several.
        outputs: folders that the step writes, by parameter.
        isolated: whether the step belongs to one language of several, so that its failure is a value: the reason goes
            to its outputs, other languages go on, and steps that read these outputs fail for the same reason.
        otherwise: result of an isolated step that failed.
        bears_failed_inputs: whether the step handles failed inputs itself, and writes reasons to its outputs itself.
            An error that it raises is then a mistake, and ends the pipeline.
        after: outputs of steps that must have succeeded, although this step does not read them.
        pause_s: seconds before the retry of a transient error.
        values: other arguments of the step, in JSON.

    Raises:
        LaunchError: the step failed, or was lost too often, and is not isolated.
        InputFailedError: an input failed, and the step is not isolated.
        Interruption: this process was asked to stop, and passed that on to the step.
    """
    try:
        if not bears_failed_inputs:
            require_inputs_made(map(Path, [*_all(inputs), *after]))
        call = Call(step=step, arguments={**inputs, **outputs, **values})
        if (stage := os.environ.get(STAGE)) and not is_done(call):
            return _run_on_cluster(call, inputs, outputs, stage, pause_s)
        return _run_with_retries(lambda: _run_as_child(call, outputs), _retries(), pause_s)
    except EXPECTED_ERRORS as error:
        if not isolated or (bears_failed_inputs and not isinstance(error, LostError)):
            raise
        say(f"failed: {format_error(error)}")
        for out in _all(outputs):
            write_failure(Path(out), format_error(error))
        return otherwise


def _run_on_cluster(call: Call, inputs: Folders, outputs: Folders, stage: str, pause_s: float) -> Any:
    """Run the step on Kubernetes, by the recipe's profile for its stage."""
    from lingraft.steps.launch.handover import Handover
    from lingraft.steps.launch.on_cluster import ClusterLauncher

    cluster = Recipe.parse(str(call.arguments["recipe"])).cluster
    profile = cluster.profile_of(TypeAdapter(StageName).validate_python(stage))
    handover = Handover(Path(cluster.storage_path) / "launched", call, inputs, outputs)
    launched = ClusterLauncher(cluster, profile, handover)
    result = _run_with_retries(launched.attempt, profile.retries, pause_s)
    handover.clear()
    return result


def _all(folders: Folders) -> Iterator[str]:
    return itertools.chain.from_iterable(map(as_list, folders.values()))


def _run_as_child(call: Call, outputs: Folders) -> AttemptResult:
    ended = child.attempt(call)
    if ended.heals:  # checkpoints lie elsewhere; these are incomplete outputs
        for out in _all(outputs):
            shutil.rmtree(out, ignore_errors=True)
    return ended


def _retries() -> int:
    return int(os.environ.get(RETRIES, _RETRIES))


def _run_with_retries(attempt: Callable[[], AttemptResult], retries: int, pause_s: float) -> Any:
    for number in itertools.count(1):
        ended = attempt()
        if ended.reason is None:
            return ended.answer.result if ended.answer else None
        if not ended.heals or number > retries:
            which = f" (attempt {number} of {retries + 1})" if ended.heals else ""
            raise (LaunchError if ended.answer else LostError)(f"{ended.reason}{which}")
        say(f"{ended.reason}: attempt {number + 1} of {retries + 1}")
        time.sleep(0.0 if ended.vanished else pause_s)
    raise AssertionError("count() does not end")

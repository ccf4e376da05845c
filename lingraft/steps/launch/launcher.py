"""Launching a step: attempts, and what may be tried again."""

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
"""Environment variable: attempts after the first, of steps that were lost or met what may heal."""
_RETRIES = 3
PAUSE_S = 10.0
"""Before the next attempt of a step that failed by what may heal; one that was lost is started at once."""

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
    """Do a step where it may vanish, and return its result.

    Args:
        step: module and function of `lingraft.steps`.
        inputs: files and folders that it builds on, by its names for them; a list where it takes several.
        outputs: folders that it fills, by its names for them.
        isolated: of one language among several, whose failure is a value: its outputs say why, its siblings go on, and
            what builds on it is left out and fails alike.
        otherwise: the result of a step that failed alone.
        bears_failed_inputs: does what it can without them, and leaves in its outputs itself why it could not; an error
            of its own is then a mistake, and no failure to go on from.
        after: files and folders of steps that must not have failed, although nothing of theirs is read.
        pause_s: seconds before the next attempt where something is to heal.
        values: the step's other arguments, as JSON holds them.

    Raises:
        LaunchError: it failed, or was lost once too often, and does not stand alone.
        InputFailedError: what it builds on failed, and it does not stand alone.
        Interruption: we were asked to stop, and so was the step.
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
    """Do it on Kubernetes, by the profile that the recipe has for its stage."""
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
    if ended.heals:  # what was trained is kept elsewhere; here lies what was lost before it could say so
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

"""Running of a step in its component's own process: retries of what may heal, and a language's failure as a value.

Kubeflow starts a lost pod again, and a training goes on from its last checkpoint; nothing here does that a second time.
"""

import itertools
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lingraft.artifacts.failures import (
    EXPECTED_ERRORS,
    explain_device_errors,
    format_error,
    require_inputs_made,
    write_failure,
)
from lingraft.console import say
from lingraft.errors import LingraftError
from lingraft.jobs.launchable import Launchable, Role
from lingraft.signals import Interruption, interruptible
from lingraft.steps import table

RETRIES = "LINGRAFT_RETRIES"
"""Environment variable: number of retries of steps that failed by a transient error."""
_RETRIES = 3
PAUSE_S = 10.0
"""Seconds before the retry of a transient error."""


class StepError(LingraftError):
    """A step failed; the message gives the reason in one line."""


def run(
    work: Launchable,
    tracking_run: str | Path | None = None,
    isolated: bool = False,
    after: Sequence[str] = (),
    pause_s: float = PAUSE_S,
) -> Any:
    """Run a step, and return its result; exit with the code of a signal that asked the process to stop.

    Args:
        work: of a class in `lingraft.steps.table.STEPS`.
        tracking_run: file with the id of the pipeline's tracking run, for work that is tracked.
        isolated: whether the work belongs to one language of several, so that its failure is a value: the reason goes
            to its outputs, other languages go on, and steps that read these outputs fail for the same reason. An error
            of work that handles failures itself is a bug, and ends the pipeline.
        after: outputs of steps that must have succeeded, although this step does not read them.
        pause_s: seconds before the retry of a transient error.

    Raises:
        StepError: the step failed, and is not isolated.
    """
    work = work.without_empty_inputs()
    try:
        with interruptible(), explain_device_errors():
            if not work.records_failure:
                require_inputs_made([*work.all_folders(Role.INPUT), *map(Path, after)])
            return _with_retries(work, Path(tracking_run) if tracking_run else None, pause_s)
    except Interruption as interruption:
        print(f"stopped: {interruption}", file=sys.stderr)
        sys.exit(interruption.exit_code)
    except EXPECTED_ERRORS as error:
        if not isolated or work.records_failure:
            raise StepError(format_error(error)) from error
        say(f"failed: {format_error(error)}")
        for out in work.all_folders(Role.OUTPUT):
            write_failure(out, format_error(error))
        return work.failed_result


def _with_retries(work: Launchable, tracking_run: Path | None, pause_s: float) -> Any:
    retries = int(os.environ.get(RETRIES, _RETRIES))
    for number in itertools.count(1):
        try:
            return table.STEPS[type(work)](work, tracking_run)
        except LingraftError as error:
            if not error.heals or number > retries:
                raise
            say(f"{format_error(error)}: attempt {number + 1} of {retries + 1}")
        for out in work.all_folders(Role.OUTPUT):  # incomplete; checkpoints are elsewhere
            shutil.rmtree(out, ignore_errors=True)
        time.sleep(pause_s)

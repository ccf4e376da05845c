"""`python -m lingraft.steps.launch.step CALL ANSWER`: run a step; both arguments are files in JSON.

The exit code is 0 with a result, 1 with the reason in the answer, or that of a signal without an answer, and the
launcher acts on it. A bug leaves a traceback and no answer.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

from lingraft.artifacts.failures import EXPECTED_ERRORS, explain_device_errors, format_error
from lingraft.artifacts.files import write_text
from lingraft.errors import LingraftError
from lingraft.signals import Interruption, interruptible
from lingraft.steps import table
from lingraft.steps.launch.calls import Call, StepAnswer

LAUNCHER = "LINGRAFT_LAUNCHER"
"""Environment variable: id of the launcher's process, of which this one is a child."""
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the step, and write its answer."""
    if launcher := os.environ.get(LAUNCHER):
        _end_with(int(launcher))
    call_file, answer_file = map(Path, sys.argv[1:])
    call = Call.model_validate_json(call_file.read_bytes())
    try:
        with interruptible(), explain_device_errors():
            work = table.load(call)
            answer = StepAnswer(result=table.STEPS[type(work)](work, call.run))
    except EXPECTED_ERRORS as error:
        answer = StepAnswer(error=format_error(error), heals=isinstance(error, LingraftError) and error.heals)
    except Interruption as interruption:
        print(f"stopped: {interruption}", file=sys.stderr)
        sys.exit(interruption.exit_code)
    write_text(answer_file, answer.model_dump_json())
    if answer.error is not None:
        print(f"error: {answer.error}", file=sys.stderr)
    sys.exit(0 if answer.error is None else 1)


def _end_with(launcher: int) -> None:
    """Have Linux kill this process when its launcher is killed.

    For Linux, the parent is the thread that forked, so the launcher's thread must wait for its child.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()

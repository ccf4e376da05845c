"""`python -m lingraft.steps.launch.step CALL ANSWER`: the step itself, where it may vanish; both are files in JSON.

Ends with 0 and a result, with 1 and the reason in the answer, or with the code of a stop and no answer: whoever
launched it knows what to do then. An error that is our mistake leaves a traceback, and no answer.
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
from lingraft.steps.launch.calls import Call, StepAnswer

LAUNCHER = "LINGRAFT_LAUNCHER"
"""Environment variable: the process that has started this one as its child."""
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Do the step."""
    if launcher := os.environ.get(LAUNCHER):
        _end_with(int(launcher))
    call_file, answer_file = map(Path, sys.argv[1:])
    call = Call.model_validate_json(call_file.read_bytes())
    try:
        with interruptible(), explain_device_errors():
            answer = StepAnswer(result=call.run())
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
    """Have Linux kill this process when its launcher is killed, which then cannot do it.

    To Linux a parent is the thread that forked, so this is for children of threads that wait for them.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()

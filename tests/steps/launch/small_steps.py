"""Steps of a moment, in place of those of `lingraft.steps.launch.step`.

`python -m tests.steps.launch.small_steps CALL ANSWER` runs one.

A test says `monkeypatch.setattr(child, "step", small_steps)`; calls then name functions of this module.
"""

import atexit
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

from lingraft.artifacts.files import write_text
from lingraft.jobs.launchable import Launchable, Output
from lingraft.steps.launch.calls import Call, StepAnswer
from lingraft.steps.launch.step import LAUNCHER

__all__ = ["LAUNCHER", "main"]
_LONG_S = 60
_FUNCTIONS = {"FillsAndWaits": "fills_and_waits"}


def main() -> None:
    """Do a step, and leave what it returns as its answer."""
    call_file, answer_file = map(Path, sys.argv[1:])
    call = Call.model_validate_json(call_file.read_bytes())
    arguments = {name: value for name, value in call.arguments.items() if name != "recipe"}
    result = globals()[_FUNCTIONS.get(call.step, call.step)](**arguments)
    write_text(answer_file, StepAnswer(result=result).model_dump_json())


class Waits(Launchable, frozen=True):
    """Work of a moment."""


class FillsAndWaits(Launchable, frozen=True):
    """Work that is never done."""

    failed_result: ClassVar[Any] = "left out"
    out: Output


def waits() -> None:
    """Know of no stop."""
    time.sleep(_LONG_S)


def fills_and_waits(out: str) -> None:
    """Begin to fill a folder, and never end."""
    Path(out).mkdir()
    time.sleep(_LONG_S)


def heeds() -> None:
    """Say that a stop may come, and end with the code of one."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    print("heeds", flush=True)
    time.sleep(_LONG_S)


def is_ended() -> None:
    """Get a signal from somebody else than the launcher."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_LONG_S)


def fails() -> None:
    """Meet a mistake of ours."""
    raise ZeroDivisionError("a mistake")


def says(begins: str, ends: str) -> None:
    """Write, and once more when the process ends."""
    atexit.register(print, ends)
    print(begins)


def sees() -> dict[str, Any]:
    """Look at what a process may have from the one that started it."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
    handlers = {number.name: signal.getsignal(number) for number in numbers}
    root = logging.getLogger()
    return {
        "handled": [name for name, handler in handlers.items() if not isinstance(handler, signal.Handlers)],
        "ignored": [name for name, handler in handlers.items() if handler is signal.SIG_IGN],
        "blocked": sorted(number.name for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "log handlers": len(root.handlers),
        "log level": root.level,
        "leads a group": os.getpgid(0) == os.getpid(),
        "launcher": os.environ[LAUNCHER],
        "of the launcher's environment": os.environ.get("OF_A_TEST"),
    }


if __name__ == "__main__":
    main()

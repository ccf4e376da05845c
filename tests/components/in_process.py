"""Steps done in the process that launches them, or in a fork of one that has made the imports."""

import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

from lingraft.steps.launch import child, step
from tests.fixtures import forked


class InProcess:
    """What the launcher takes for a child process: the same program with the same files, done when it is started."""

    def __init__(self, arguments: Sequence[str]) -> None:
        with mock.patch.object(sys, "argv", [step.__name__, *arguments]), pytest.raises(SystemExit) as ended:
            step.main()
        self._code = ended.value.code

    def send_signal(self, number: int) -> None:
        """It has ended."""

    def wait(self, timeout: float) -> int:
        """The exit code."""
        return int(self._code)


class OfItsOwn:
    """A process of its own, forked for the step."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._child = forked.start(_do, *arguments, log=Path(arguments[0]).with_suffix(".log"))

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        self._child.send(number)

    def wait(self, timeout: float) -> int:
        """The exit code."""
        return self._child.ends()


def _do(*arguments: str) -> None:
    sys.argv = [step.__name__, *arguments]
    step.main()


def steps_in_process(patch: pytest.MonkeyPatch) -> None:
    """Have no step start a Python of its own."""
    patch.setattr(child, "_start", InProcess)

"""Steps done in the process that launches them."""

import sys
from collections.abc import Sequence
from unittest import mock

import pytest

from lingraft.steps.launch import child, step


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


def steps_in_process(patch: pytest.MonkeyPatch) -> None:
    """Have no step start a Python of its own."""
    patch.setattr(child, "_start", InProcess)

"""Signals to who has started a step as its child process: none is lost, at whatever moment it comes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lingraft.launch import child
from lingraft.launch.calls import Call
from lingraft.stopping import EXIT_CODES, Interruption, handled

STEP = Call(step="language.depths_of", arguments={})
HEEDS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
print(flush=True)
time.sleep(60)
"""


@pytest.fixture
def missed() -> Iterator[list[int]]:
    """Signals that the launcher did not see to, which would have ended it."""
    seen: list[int] = []
    with handled(lambda number, _: seen.append(number)):
        yield seen


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Processes that are started; we get the signal `_Asked.number`, if any, the moment that one is there."""
    _Asked.known = []
    monkeypatch.setattr(subprocess, "Popen", _Asked)
    return _Asked.known


class _Asked(subprocess.Popen[bytes]):
    number: int | None = None
    known: list[subprocess.Popen[bytes]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.known.append(self)
        if self.number:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", EXIT_CODES)
def test_a_stop_that_comes_while_the_step_starts_reaches_it(
    number: signal.Signals,
    missed: list[int],
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_Asked, "number", number)
    with pytest.raises(Interruption) as caught:
        child.attempt(STEP)
    assert caught.value.exit_code == EXIT_CODES[number]
    assert [process.returncode for process in started] == [-number]  # it knew of no handler yet
    assert missed == []


def test_a_stop_that_comes_later_is_heeded_by_the_step(
    missed: list[int], started: list[subprocess.Popen[bytes]], capfd: pytest.CaptureFixture[str]
) -> None:
    def ask() -> None:
        while not capfd.readouterr().out:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    assert child._run([sys.executable, "-c", HEEDS]) == EXIT_CODES[signal.SIGTERM]
    asking.join()
    assert [process.returncode for process in started] == [EXIT_CODES[signal.SIGTERM]]
    assert missed == []


def test_a_step_that_somebody_else_ends_has_not_been_stopped_by_us() -> None:
    ended = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)"
    assert child._run([sys.executable, "-c", ended]) == -signal.SIGTERM


def test_a_step_does_not_inherit_how_its_launcher_sees_to_signals() -> None:
    asks = "import signal, sys\nsys.exit(signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)"
    assert child._run([sys.executable, "-c", asks]) == 0

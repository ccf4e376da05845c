"""A step as a child process, which survives in what it has kept when it is killed."""

import atexit
import contextlib
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Protocol

from lingraft.artifacts.files import write_text
from lingraft.signals import EXIT_CODES, Interruption, signal_handler
from lingraft.steps.launch import step
from lingraft.steps.launch.calls import AttemptResult, Call, StepAnswer, out_of_memory

_MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")
_STOPS = {code: number for number, code in EXIT_CODES.items()}
_MOMENT_S = 0.2


class _Process(Protocol):
    """A step's process, as the launcher sees it."""

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""

    def wait(self, timeout: float) -> int:
        """Wait for the end; returns the exit code, negative for a signal.

        Raises:
            TimeoutExpired: it has not ended after so many seconds.
        """


def fork_steps() -> None:
    """Start the steps of this process as forks of it from now on, with the imports that it has made.

    Only a process without threads, which has not used a GPU, may do so.
    """
    global _start
    _start = _Fork


def attempt(call: Call) -> AttemptResult:
    """Do a step in a process of its own, which writes to our output.

    Raises:
        Interruption: we were asked to stop, and so was the step.
    """
    with tempfile.TemporaryDirectory() as folder:
        call_file, answer_file = Path(folder) / "call.json", Path(folder) / "answer.json"
        write_text(call_file, call.model_dump_json())
        killed_before = _killed_for_memory()
        code = _run(lambda: _start([str(call_file), str(answer_file)]))
        if answer_file.exists():
            return AttemptResult(StepAnswer.model_validate_json(answer_file.read_bytes()))
    if code in _STOPS:
        raise Interruption(_STOPS[code], f"step {call.step!r} was asked to stop. Run the same again to go on.")
    if code == -signal.SIGKILL and _killed_for_memory() > killed_before:
        return out_of_memory(f"step {call.step!r}", "the memory of its container")
    if code == -signal.SIGKILL:
        return AttemptResult(vanished=f"the process of step {call.step!r} was killed")
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return AttemptResult(failed=f"the process of step {call.step!r} ended {how}, and its log says why")


class _Fork:
    """A step in a fork of this process, in a group of its own."""

    def __init__(self, arguments: Sequence[str]) -> None:
        # A signal must find our handlers in this process, and none of them in the other.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, EXIT_CODES)
        try:
            given = arguments, os.getpid(), before
            self._process = multiprocessing.get_context("fork").Process(target=_run_forked, args=given)
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self._process.is_alive() and self._process.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def wait(self, timeout: float) -> int:
        """Wait for the end, as `subprocess.Popen.wait` does."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("step", timeout)
        return self._process.exitcode


def _run_forked(arguments: Sequence[str], launcher: int, mask: set[signal.Signals]) -> None:
    """Do a step as a new Python would."""
    os.environ[step.LAUNCHER] = str(launcher)  # not our parent of now: the launcher may be gone already
    os.setpgid(0, 0)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    logging.getLogger().handlers.clear()
    logging.getLogger().setLevel(logging.WARNING)
    sys.argv = [step.__name__, *arguments]
    atexit._clear()  # the launcher's functions are not for the step; multiprocessing would not call the step's own
    try:
        step.main()
    finally:
        atexit._run_exitfuncs()


def _spawn(arguments: Sequence[str]) -> _Process:
    """Start a step in a new Python, in a group of its own."""
    command = [sys.executable, "-m", step.__name__, *arguments]
    return subprocess.Popen(command, process_group=0, env=os.environ | {step.LAUNCHER: str(os.getpid())})


_start: Callable[[Sequence[str]], _Process] = _spawn


def _run(start: Callable[[], _Process]) -> int:
    """Run to the end; who is asked to stop passes that on, and waits. A group of its own is not asked twice.

    Returns:
        The exit code; of a step that was stopped before it could heed what was passed on, that of one that has.
    """
    started: list[_Process] = []
    coming: list[int] = []
    passed_on: set[int] = set()

    def pass_on() -> None:
        while started and coming:
            passed_on.add(number := coming.pop())
            started[0].send_signal(number)

    def ask(number: int, _: FrameType | None) -> None:
        coming.append(number)
        pass_on()

    # Handled from before the process is there: what comes while it starts waits until it can be passed on.
    with signal_handler(ask):
        started.append(process := start())
        pass_on()
        code = _wait(process)
    return EXIT_CODES[signal.Signals(-code)] if -code in passed_on else code


def _wait(process: _Process) -> int:
    """Wait for the end; returns the exit code.

    The kernel gives a signal that comes while this thread blocks it, as it does while it starts a process, to another
    thread. That does not interrupt a wait of this thread, which alone runs handlers: so it waits for moments only.
    """
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_MOMENT_S)


def _killed_for_memory() -> int:
    """How often the kernel has killed a process of our container for its memory; 0 where it does not count that."""
    try:
        events = dict(line.split() for line in _MEMORY_EVENTS.read_text().splitlines())
    except OSError:
        return 0
    return int(events.get("oom_kill", 0))

"""Run a step in a child process; if that is killed, its checkpoints remain."""

import atexit
import contextlib
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
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
        """Send a signal unless the process has ended."""

    def wait(self, timeout: float) -> int:
        """Wait for the end, and return the exit code, negative for a signal.

        Raises:
            TimeoutExpired: the process runs on after `timeout` seconds.
        """


def fork_steps() -> None:
    """Start steps as forks of this process from now on, so that they share its imports.

    Only a process without threads that has not used a GPU may do so.
    """
    global _start
    _start = _Fork


def attempt(call: Call) -> AttemptResult:
    """Run a step in a process of its own, which writes to our output.

    Raises:
        Interruption: this process was asked to stop, and passed that on to the step.
    """
    with tempfile.TemporaryDirectory() as folder:
        call_file = Path(folder) / "call.json"
        answer_file = Path(folder) / "answer.json"
        write_text(call_file, call.model_dump_json())
        killed_before = _killed_for_memory()
        with _forwarding_signals() as wait_for:
            code = wait_for(_start([str(call_file), str(answer_file)]))
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
    """A step in a fork of this process, with a process group of its own."""

    def __init__(self, arguments: Sequence[str]) -> None:
        # Our signal handlers must run in this process only, never in the fork.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, EXIT_CODES)
        try:
            self._process = multiprocessing.get_context("fork").Process(
                target=_run_forked, args=(arguments, os.getpid(), before)
            )
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def send_signal(self, number: int) -> None:
        """Send a signal unless the process has ended."""
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
    """Run a step in the fork as a new Python would."""
    os.environ[step.LAUNCHER] = str(launcher)  # not os.getppid(): the launcher may have ended already
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
    """Start a step in a new Python, with a process group of its own."""
    command = [sys.executable, "-m", step.__name__, *arguments]
    return subprocess.Popen(command, process_group=0, env=os.environ | {step.LAUNCHER: str(os.getpid())})


_start: Callable[[Sequence[str]], _Process] = _spawn


@contextlib.contextmanager
def _forwarding_signals() -> Iterator[Callable[[_Process], int]]:
    """Forward signals to stop to a step, once each, since the step has a process group of its own.

    Yields:
        A function that waits for a process that was started inside the context, and returns its exit code. A step that
        a forwarded signal killed counts as one that stopped by itself.
    """
    started: list[_Process] = []
    coming: list[int] = []
    forwarded: set[int] = set()

    def forward() -> None:
        while started and coming:
            forwarded.add(number := coming.pop())
            started[0].send_signal(number)

    def handle(number: int, _: FrameType | None) -> None:
        coming.append(number)
        forward()

    def wait_for(process: _Process) -> int:
        started.append(process)
        forward()
        code = _wait(process)
        return EXIT_CODES[signal.Signals(-code)] if -code in forwarded else code

    # Handled before the process exists: a signal that arrives while it starts is forwarded afterwards.
    with signal_handler(handle):
        yield wait_for


def _wait(process: _Process) -> int:
    """Wait for the end, and return the exit code.

    A signal that this thread blocks, as while it starts a process, goes to another thread. It does not interrupt a wait
    of this thread, which alone runs handlers. Therefore each wait is short.
    """
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_MOMENT_S)


def _killed_for_memory() -> int:
    """Return how many processes of our container the kernel has killed for memory; 0 if it does not count them."""
    try:
        events = dict(line.split() for line in _MEMORY_EVENTS.read_text().splitlines())
    except OSError:
        return 0
    return int(events.get("oom_kill", 0))

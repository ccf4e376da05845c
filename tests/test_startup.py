"""Ctrl-C while a program starts: it ends at once, by the signal or with 130, and without a traceback."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingraft.signals import end_quietly_on_ctrl_c

PROGRAMS = {
    "lingraft": ["registry", "show"],
    "lingraft.serving": ["none"],
    "pipelines": ["compile", "--recipe", "none.toml"],
}
MARKED = """
import os, runpy, sys
from lingraft import signals
guard = signals.end_quietly_on_ctrl_c
def marked():
    guard()
    os.write(1, b"late" if "typer" in sys.modules else b"ok")
signals.end_quietly_on_ctrl_c = marked
module, *sys.argv[1:] = sys.argv[1:]
runpy.run_module(module, run_name="__main__")
"""
"""Says when a program has come to its guard; before, Python itself starts, and handles SIGINT by a traceback."""
ENDED = {-signal.SIGINT, 130, 0}
"""What a shell calls 130 in both cases."""
STOPPED = ("", "stopped: asked to stop. Run the same again to go on.\n")


@contextlib.contextmanager
def guarded(program: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that has come to its first lines."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "MLFLOW_TRACKING_URI": "http://[::1]:9"}
    with subprocess.Popen(
        [sys.executable, "-c", MARKED, program, *PROGRAMS[program]],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.read(2) == "ok"
        yield process


def ends_quietly(program: str, folder: Path, after_s: float) -> None:
    with guarded(program, folder) as process:
        time.sleep(after_s)
        if process.poll() is not None:
            return
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert "Traceback" not in told, f"after {after_s} s: {told}"
    assert process.returncode in {*ENDED, 1}, f"after {after_s} s: {told}"  # 1: it had just been refused
    if process.returncode == 130:
        assert told.endswith(STOPPED)


@pytest.mark.parametrize("name", PROGRAMS)
def test_ctrl_c_while_a_program_starts_ends_it_without_a_traceback(name: str, tmp_path: Path) -> None:
    for after_s in (0.0, 0.03, 0.1):
        ends_quietly(name, tmp_path, after_s)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PROGRAMS)
def test_ctrl_c_at_any_moment_of_the_start_ends_a_program_without_a_traceback(name: str, tmp_path: Path) -> None:
    for number in range(200):
        ends_quietly(name, tmp_path, number / 400)


def test_who_ignores_or_handles_ctrl_c_goes_on_doing_so() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        for handler in (signal.SIG_IGN, lambda _number, _frame: None):
            signal.signal(signal.SIGINT, handler)
            end_quietly_on_ctrl_c()
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


FIRST = """
import os, time
from lingraft.signals import end_quietly_on_ctrl_c
end_quietly_on_ctrl_c()
os.write(1, str(os.getpid()).encode())
time.sleep(60)
"""
"""A program that stays where it imports what it needs."""


@pytest.mark.integration
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_process_1_of_a_container_ends_on_a_signal_while_it_starts(number: signal.Signals, status: int) -> None:
    """Linux drops signals for the first process of a PID namespace, unless it handles them."""
    namespace = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [*namespace, sys.executable, "-c", FIRST]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.read(1) == b"1"
        [first] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(first), number)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (status, b"")

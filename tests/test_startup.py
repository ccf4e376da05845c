"""Ctrl-C while a program starts: it ends at once, by the signal or with 130, and without a traceback."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lingraft.startup import end_quietly_on_ctrl_c

PROGRAMS = {
    "lingraft": ["-m", "lingraft", "registry", "ls"],
    "pipelines": ["-m", "pipelines", "compile", "--recipe", "none.toml"],
}
LATE = ("_ssl", "pydantic_core")
"""Libraries that these commands load when they run."""
ENDED = {-signal.SIGINT, 130}
"""What a shell calls 130 in both cases."""
STOPPED = ("", "stopped: asked to stop. Run the same again to go on.\n")


@contextlib.contextmanager
def guarded(arguments: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that has come to its first line: Python handles SIGINT no more, as it did while it started itself."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "MLFLOW_TRACKING_URI": "http://[::1]:9"}
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not _is_guarded(process.pid):
            assert process.poll() is None, "it ended without a guard"
            time.sleep(0.0005)
        loaded = Path(f"/proc/{process.pid}/maps").read_text()
        # Python drops its handler when it ends, too.
        assert not any(late in loaded for late in LATE), "it has come further without a guard"
        yield process


def _is_guarded(pid: int) -> bool:
    """Python ignores SIGPIPE before it handles SIGINT."""
    masks = dict(re.findall(r"^(Sig\w+):\s+(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE))
    ignored, caught = int(masks["SigIgn"], 16), int(masks["SigCgt"], 16)
    return bool(ignored >> signal.SIGPIPE - 1 & 1) and not caught >> signal.SIGINT - 1 & 1


def ends_quietly(arguments: Sequence[str], folder: Path, after_s: float) -> None:
    with guarded(arguments, folder) as process:
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
        ends_quietly(PROGRAMS[name], tmp_path, after_s)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PROGRAMS)
def test_ctrl_c_at_any_moment_of_the_start_ends_a_program_without_a_traceback(name: str, tmp_path: Path) -> None:
    for number in range(200):
        ends_quietly(PROGRAMS[name], tmp_path, number / 400)


def test_who_ignores_or_handles_ctrl_c_goes_on_doing_so() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        for handler in (signal.SIG_IGN, lambda _number, _frame: None):
            signal.signal(signal.SIGINT, handler)
            end_quietly_on_ctrl_c()
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)

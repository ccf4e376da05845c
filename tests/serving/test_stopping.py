"""Signals to real server processes, from the first import to readiness and after: each one ends the server at once."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import pytest

from pipelines.endpoint import RunningServer, launch_server, stop

pytestmark = pytest.mark.integration
LIMIT_S = 120
POLL_S = 0.001
MODULE, COMMAND = ("-m", "lingraft.serving"), ("-m", "lingraft", "serve")
"""Programs that serve."""


def said(log: IO[bytes]) -> str:
    return os.pread(log.fileno(), 2**24, 0).decode()


def writes(pattern: str) -> Callable[[RunningServer], object]:
    return lambda server: re.search(pattern, said(server.log))


def signalled(
    bundle: Path, program: Sequence[str], number: signal.Signals, time_has_come: Callable[[RunningServer], object]
) -> None:
    """Start a server and send it a signal as soon as something is so; it ends with 0, and without a traceback."""
    with TemporaryFile() as log:
        server = launch_server([bundle], log, program=program)
        try:
            until_s = time.monotonic() + LIMIT_S
            while not time_has_come(server):
                assert server.process.poll() is None, said(log)
                assert time.monotonic() < until_s, said(log)
                time.sleep(POLL_S)
            server.process.send_signal(number)
            assert server.process.wait(LIMIT_S) == 0, said(log)
            assert "Traceback" not in said(log)
        finally:
            stop(server.process)


@pytest.mark.parametrize(
    ("number", "program", "line"),
    [
        (signal.SIGTERM, MODULE, " pydantic\n"),
        (signal.SIGINT, MODULE, r" kserve\.model_server\n"),
        (signal.SIGTERM, COMMAND, " fastapi\n"),
        (signal.SIGTERM, MODULE, "Started server process"),
        (signal.SIGTERM, COMMAND, "Uvicorn running on"),
    ],
)
def test_a_signal_at_any_moment_ends_the_server_in_good_order(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, program: Sequence[str], line: str
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    signalled(bundle, program, number, writes(line))


SWALLOWING = f"""#!{sys.executable}
import os, signal, sys
from lingraft.serving.__main__ import main
from lingraft.serving.served_bundles import ServedBundles

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

load = ServedBundles.load
def loaded(*given):
    Dropped()
    return load(*given)

ServedBundles.load = loaded
sys.argv = sys.argv[2:]
main()
"""
"""An interpreter whose `-m lingraft.serving` gets a signal where Python ignores all that is raised."""


def test_a_signal_that_the_start_swallows_ends_the_server_before_it_is_ready(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(SWALLOWING)
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with TemporaryFile() as log:
        server = launch_server([bundle], log)
        try:
            assert server.process.wait(LIMIT_S) == 0, said(log)
        finally:
            stop(server.process)
        assert "Uvicorn running" not in said(log)

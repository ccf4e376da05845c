"""Optuna's own pages open on the searches of a storage by one command."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from lingraft.config.search import Goal
from lingraft.search.shared_study import SharedStudy
from lingraft.signals import EXIT_CODES
from lingraft.stages.results import Trial

pytestmark = pytest.mark.integration
LIMIT_S = 120


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _command(address: str, port: int) -> list[str]:
    return [sys.executable, "-m", "lingraft", "search", "dashboard", "--storage", address, "--port", str(port)]


def test_the_dashboard_shows_the_searches_of_a_storage_and_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    address, port = f"journal:///{tmp_path / 'trials'}", _free_port()
    board = SharedStudy.open("tiny-de", address, Goal.COMPUTE, {"depth": (1, 2)}, lost_after_s=60)
    trial = board.claim({"depth": 1})
    assert trial
    board.report(trial.number, 1, 0.25)
    found = Trial(number=0, depth=1, steps=1, flops=1, elapsed_s=1, score=0.25, pruned=False, scores_by_flops=[(1, 1)])
    board.finish(trial.number, found, [float("inf")])  # a target that was never reached
    with subprocess.Popen(_command(address, port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as dashboard:
        try:
            (study,) = json.loads(_asked(f"http://127.0.0.1:{port}/api/studies", dashboard))["study_summaries"]
            told = json.loads(_asked(f"http://127.0.0.1:{port}/api/studies/{study['study_id']}?after=0", dashboard))
            page = _asked(f"http://127.0.0.1:{port}/", dashboard).decode()
            dashboard.terminate()
            assert dashboard.wait(LIMIT_S) == EXIT_CODES[signal.SIGTERM]
        finally:
            dashboard.kill()
    assert study["study_name"] == "tiny-de"
    assert [(trial["state"], trial["values"]) for trial in told["trials"]] == [("Complete", ["inf"])]
    assert [trial["intermediate_values"] for trial in told["trials"]] == [[{"step": 1, "value": 0.25}]]
    assert "<title>Optuna Dashboard</title>" in page


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        (tmp_path / "trials").touch()
        command = _command(f"sqlite:///{tmp_path / 'trials'}", port)
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert ended.returncode == 1
    assert re.search(rf"^error: cannot listen on 127.0.0.1, port {port}: .* \(--port\)", ended.stderr, re.M)
    assert "Traceback" not in ended.stderr


def _asked(url: str, dashboard: subprocess.Popen[bytes]) -> bytes:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        assert dashboard.poll() is None
        try:
            with urllib.request.urlopen(url) as answer:
                return bytes(answer.read())
        except urllib.error.URLError:
            time.sleep(0.2)
    raise AssertionError(f"{url} did not answer")

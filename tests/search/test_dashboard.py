"""Optuna's own pages open on the searches of a storage by one command."""

import json
import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from lingraft.config.search import Goal
from lingraft.search.shared_study import SharedStudy
from lingraft.signals import EXIT_CODES
from lingraft.stages.results import Trial
from tests.fixtures.forked import Child, start_lingraft

pytestmark = pytest.mark.integration


def _started(address: str, port: int, folder: Path) -> Child:
    return start_lingraft(["search", "dashboard", "--storage", address, "--port", str(port)], folder / "log")


def test_the_dashboard_shows_the_searches_of_a_storage_and_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    address = f"journal:///{tmp_path / 'trials'}"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
    board = SharedStudy.open("tiny-de", address, Goal.COMPUTE, {"depth": (1, 2)}, lost_after_s=60)
    trial = board.claim({"depth": 1})
    assert trial
    board.report(trial.number, 1, 0.25)
    found = Trial(number=0, depth=1, steps=1, flops=1, elapsed_s=1, score=0.25, pruned=False, scores_by_flops=[(1, 1)])
    board.finish(trial.number, found, [float("inf")])  # a target that was never reached
    with _started(address, port, tmp_path) as dashboard:
        dashboard.wait_until(lambda: _answer(port, "/"))
        (study,) = json.loads(_answer(port, "/api/studies"))["study_summaries"]
        told = json.loads(_answer(port, f"/api/studies/{study['study_id']}?after=0"))
        page = _answer(port, "/").decode()
        dashboard.send(signal.SIGTERM)
        assert dashboard.ends() == EXIT_CODES[signal.SIGTERM]
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
        with _started(f"sqlite:///{tmp_path / 'trials'}", port, tmp_path) as ended:
            assert ended.ends() == 1
    assert re.search(rf"^error: cannot listen on 127.0.0.1, port {port}: .* \(--port\)", ended.said, re.M)
    assert "Traceback" not in ended.said


def _answer(port: int, page: str) -> bytes:
    """What the dashboard answers; nothing while it does not listen yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}") as answer:
            return bytes(answer.read())
    except urllib.error.URLError:
        return b""

"""Languages are added, swapped, refused and rolled back in a real server that is asked all the time."""

import json
import os
import signal
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from lingraft.cli import app
from lingraft.errors import PublicationError
from lingraft.serving.client import run_server
from tests.serving.asking import infer, inputs
from tests.serving.publishing.asked import TASK, Crowd, said, texts

pytestmark = pytest.mark.integration
SWAPS, CLIENTS = int(os.environ.get("SOAK_SWAPS", "2")), 4


def lingraft(*arguments: object) -> str:
    ended = CliRunner().invoke(app, ["publish", *map(str, arguments)], catch_exceptions=False)
    return ended.stdout


def test_no_answer_fails_or_is_mixed_while_versions_change(
    started: Path, german: Path, turkish: Path, foreign: Path, folder: Path
) -> None:
    to = f"--to={folder}"
    with run_server([started], settings=("--no-detect", f"--follow={folder}", "--follow-s=0.05")) as server:
        crowd = Crowd(server.url, ("en", "de"))
        with crowd.asking(CLIENTS):
            assert ": served" in lingraft("bundle", turkish, to, "--language=tr")
            with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
                assert client.post(infer(TASK), json=inputs(["tr"], text=texts("tr"))).is_success
            for _ in range(SWAPS):
                asked = len(crowd.answers)
                assert ": served" in lingraft("bundle", german, to, "--language=de")
                with pytest.raises(PublicationError, match="made for body"):
                    lingraft("bundle", foreign, to, "--language=de")
                lingraft("rollback", TASK, "de", to)
                while len(crowd.answers) < asked + 4 * CLIENTS:  # of this state, too
                    assert server.process.poll() is None
                lingraft("rollback", TASK, "de", to)
            lingraft("rollback", TASK, "tr", to)
            with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
                gone = client.post(infer(TASK), json=inputs(["tr"], text=texts("tr")))
            assert (gone.status_code, "speaks ['de', 'en']" in gone.text) == (400, True)
            told = client_metrics(server.url)
        server.log.seek(0)
        lines = [json.loads(line) for line in server.log.read().splitlines()]
    versions = {
        "en": {"one": said(started, "en")},
        "de": {"one": said(started, "de"), "two": said(german, "de")},
    }
    counted, mixed = crowd.seen(versions)
    assert crowd.failures == []
    assert mixed == 0
    assert all(counted.values())
    assert len(crowd.answers) > 10 * SWAPS * CLIENTS
    print(f"answers {len(crowd.answers)} {counted}, failed {len(crowd.failures)}, mixed {mixed}")
    refused = [line["reason"] for line in lines if line["event"] == "refused"]
    assert len(refused) == SWAPS
    assert all("made for body" in reason for reason in refused)
    assert f'lingraft_publications_total{{language="de",outcome="refused",task="topic"}} {SWAPS:.1f}' in told


def client_metrics(url: str) -> str:
    return httpx.get(f"{url}/metrics", trust_env=False).text


def test_a_server_that_is_killed_is_followed_by_one_that_answers_with_what_was_published_meanwhile(
    started: Path, german: Path, folder: Path
) -> None:
    settings = ("--no-detect", f"--follow={folder}")
    with run_server([started], settings=settings) as server:
        crowd = Crowd(server.url, ("en", "de"))
        with crowd.asking(CLIENTS):
            while len(crowd.answers) < CLIENTS:
                assert server.process.poll() is None
            server.process.kill()
            assert server.process.wait() == -signal.SIGKILL
    lingraft("bundle", german, f"--to={folder}", "--wait=0")
    with run_server([started], settings=settings) as server:
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
            found = client.post(infer(TASK), json=inputs(["de"], text=texts("de"))).json()
        shown = lingraft("ls", f"--to={folder}")
    outputs = {each["name"]: each["data"] for each in found["outputs"]}["probabilities"]
    assert outputs == pytest.approx([each for answer in said(german, "de") for each in answer], abs=1e-4)
    assert f"{TASK} de 1: serve" in shown
    assert f"{TASK} de serves" in shown
    assert len([*(folder / "answers").iterdir()]) == 1  # what the killed one has said; the other has taken its own away

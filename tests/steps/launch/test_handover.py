"""Inputs and failures of launched steps on the claim: those that nobody needs are removed, and the others stay."""

import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lingraft.cli import app
from lingraft.config.recipe import Recipe
from lingraft.jobs.data import TokenizerJob
from lingraft.steps.launch.calls import StepAnswer
from lingraft.steps.launch.handover import Handover, prune_launched
from tests.workshop import TINY

DAY = 86_400


@pytest.fixture
def handover(tmp_path: Path) -> Handover:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "train.jsonl").write_text("{}")
    job = TokenizerJob(recipe=Recipe.load(TINY), text=tmp_path / "text", out=tmp_path / "out")
    return Handover(tmp_path / "launched", job, None)


def _age(folder: Path, days: float) -> None:
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.time() - days * DAY,) * 2)


def test_an_input_goes_when_no_step_has_been_sent_it_for_long(handover: Handover, tmp_path: Path) -> None:
    launched = tmp_path / "launched"
    handover.send(handover.attempt())
    handover.clear()
    [sent] = (launched / "inputs").iterdir()
    _age(launched, 29)
    assert [*prune_launched(launched, 30 * DAY)] == []
    _age(launched, 31)
    handover.send(handover.attempt())
    handover.clear()
    assert [*prune_launched(launched, 30 * DAY)] == []  # another run was sent it
    _age(launched, 31)
    assert [*prune_launched(launched, 30 * DAY, dry_run=True)] == [sent]
    assert [*prune_launched(launched, 30 * DAY)] == [sent]
    assert not sent.exists()


def test_a_step_that_failed_long_ago_goes_with_its_inputs(handover: Handover, tmp_path: Path) -> None:
    attempt, launched = handover.attempt(), tmp_path / "launched"
    handover.send(attempt)
    answer = attempt.folder / "answer.json"
    answer.write_text(StepAnswer(error="no").model_dump_json(), encoding="utf-8")
    [sent] = (launched / "inputs").iterdir()
    _age(launched, 29)
    assert [*prune_launched(launched, 30 * DAY)] == []
    _age(launched, 31)
    assert [*prune_launched(launched, 30 * DAY, dry_run=True)] == [attempt.folder, sent]
    assert answer.exists()
    assert [*prune_launched(launched, 30 * DAY)] == [attempt.folder, sent]
    assert not attempt.folder.exists()
    assert not sent.exists()


def test_an_input_of_a_step_that_has_not_answered_yet_stays_however_old_it_is(
    handover: Handover, tmp_path: Path
) -> None:
    handover.send(handover.attempt())
    _age(tmp_path / "launched", 99)
    assert [*prune_launched(tmp_path / "launched", 30 * DAY)] == []


def test_the_command_clears_both_folders_of_a_claim(handover: Handover, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    arguments = ["prune", str(tmp_path / "results"), "--launched", str(tmp_path / "launched"), "--yes"]
    assert CliRunner().invoke(app, arguments).stdout == "nothing to delete\n"  # nothing was launched yet
    handover.send(handover.attempt())
    handover.clear()
    [sent] = (tmp_path / "launched" / "inputs").iterdir()
    _age(tmp_path / "launched", 31)
    assert CliRunner().invoke(app, arguments).stdout == f"deleted {sent}\n"

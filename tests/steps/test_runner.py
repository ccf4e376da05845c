"""Steps in their component's process: what is tried again, what is a value, and what a signal leaves."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lingraft.artifacts import cache
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.failures import failure_reason, write_failure
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.errors import TrackingError
from lingraft.jobs.data import TokenizerJob
from lingraft.jobs.training import PretrainingJob
from lingraft.steps import data, runner, table
from lingraft.steps.language import DepthChoice
from tests.fixtures import forked
from tests.tracking_stores import quiet, sqlite_store
from tests.workshop import TINY, Workshop, changed

pytestmark = quiet
STEPS = 80
KEPT = 3
"""Steps of which there is a checkpoint when the signal comes."""


@pytest.fixture
def run(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The file that names a tracking run, with a place for results."""
    monkeypatch.setenv(cache.RESULTS_VARIABLE, str(tmp_path / "shared"))
    with sqlite_store(tmp_path):
        data.open_run(workshop.recipe.to_json(), "source", tmp_path / "run")
        yield str(tmp_path / "run")


def pretrain(workshop: Workshop, run: str, out: Path) -> Any:
    settings = {"steps": STEPS, "keep_every_s": 0.02, "log_every_steps": STEPS}
    recipe = changed(workshop.recipe, "pretraining", **settings)
    blocks, tokenizer = workshop.blocks["en"], workshop.tokenizers["en"]
    return runner.run(PretrainingJob(recipe=recipe, blocks=blocks, tokenizer=tokenizer, out=out), run)


def steps_kept(shared: Path) -> int:
    places = shared.glob("primary-*/result.training/step-*")
    return max((int(place.name.removeprefix("step-")) for place in places), default=0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_step_that_ends_by_a_signal_goes_on_where_it_was(
    workshop: Workshop, run: str, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    given, out = (workshop, run, tmp_path / "out"), tmp_path / "out"
    with forked.start(pretrain, *given, log=tmp_path / "log") as step:
        step.wait_until(lambda: steps_kept(tmp_path / "shared") > KEPT)
        step.send(number)
        assert step.ends() == code
    assert KEPT < steps_kept(tmp_path / "shared") < STEPS
    with forked.start(pretrain, *given, log=tmp_path / "log") as step:
        assert step.returns()["steps"] == STEPS
    assert "going on after step" in step.said
    assert Artifact.load(out, Kind.PRIMARY)


@pytest.mark.parametrize(("down", "result"), [(1, [2]), (2, None)])
def test_a_transient_error_is_tried_again_as_often_as_is_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, down: int, result: list[int] | None
) -> None:
    answers = iter([*[None] * down, [2]])

    def choose(given: DepthChoice, _: Path | None) -> list[int]:
        assert not given.out.exists()
        given.out.mkdir()
        if (answer := next(answers)) is None:
            error = TrackingError("MLflow is down")
            error.heals = True
            raise error
        return answer

    monkeypatch.setenv(runner.RETRIES, "1")
    monkeypatch.setitem(table.STEPS, DepthChoice, choose)
    choice = DepthChoice(recipe=Recipe.load(TINY), language="de", compare=False, out=tmp_path / "out")
    if result:
        assert runner.run(choice, pause_s=0.0) == result
        return
    with pytest.raises(runner.StepError, match="MLflow is down"):
        runner.run(choice, pause_s=0.0)


def test_a_step_whose_input_failed_is_left_out(tmp_path: Path) -> None:
    before, out = tmp_path / "before", tmp_path / "out"
    write_failure(before, "text of 'tr': no text")
    job = TokenizerJob(recipe=Recipe.load(TINY), text=before, out=out)
    with pytest.raises(runner.StepError, match="no text"):
        runner.run(job)
    runner.run(job, isolated=True)
    assert failure_reason(out) == "text of 'tr': no text"

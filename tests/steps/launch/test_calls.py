"""Steps by their names, and what they take."""

from pathlib import Path

import pytest

from lingraft.config.recipe import Recipe
from lingraft.jobs.launchable import Role
from lingraft.jobs.training import AdaptationJob
from lingraft.steps import table
from lingraft.steps.launch.calls import AttemptResult, Call, StepAnswer, out_of_memory
from tests.workshop import TINY


def adaptation(folder: Path) -> AdaptationJob:
    fields = {name: folder / name for name in ("primary", "mini", "blocks", "tokenizer", "out")}
    return AdaptationJob(recipe=Recipe.load(TINY), depth=1, **fields)


@pytest.mark.parametrize("step", ["os.system", "Launchable", "adapt", ""])
def test_nothing_but_steps_is_called(step: str) -> None:
    with pytest.raises(table.UnknownStepError, match=f"no step '{step}'; there are .*AdaptationJob"):
        table.load(Call(step=step, arguments={}))


def test_inputs_and_outputs_are_told_by_their_fields(tmp_path: Path) -> None:
    job = adaptation(tmp_path)
    assert job.folders(Role.OUTPUT) == {"out": [tmp_path / "out"]}
    assert job.folders(Role.INPUT).keys() == job.inputs.keys() == {"primary", "mini", "blocks", "tokenizer"}


def test_an_optional_input_that_is_empty_or_does_not_exist_is_absent(tmp_path: Path) -> None:
    job = adaptation(tmp_path)
    assert job.mini
    for make in (lambda folder: None, Path.mkdir):
        make(job.mini)
        assert "mini" not in job.without_empty_inputs().inputs
    (job.mini / "file").touch()
    assert job.without_empty_inputs() == job


def test_only_what_was_lost_or_says_so_is_worth_another_attempt() -> None:
    assert AttemptResult(vanished="the node went").heals
    assert AttemptResult(StepAnswer(error="MLflow is down", heals=True)).heals
    assert not AttemptResult(StepAnswer(error="bad recipe")).heals
    assert not out_of_memory("step", "4Gi").heals
    assert AttemptResult(StepAnswer(result=1)).reason is None
    assert "micro-batches" in str(out_of_memory("step", "4Gi").reason)

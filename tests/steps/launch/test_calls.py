"""Steps by their names, and what they take."""

from pathlib import Path

import pytest

from lingraft.steps.launch.calls import AttemptResult, Call, StepAnswer, UnknownStepError, out_of_memory


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("os.system", "no module that has steps"),
        ("language._chosen_depth", "no step '_chosen_depth'"),
        ("language.Path", "no step 'Path'"),
        ("language.unknown", "no step 'unknown'"),
        ("language", "no step ''"),
    ],
)
def test_nothing_but_steps_is_called(step: str, said: str) -> None:
    with pytest.raises(UnknownStepError, match=said):
        Call(step=step, arguments={}).run()


def test_an_argument_that_a_step_does_not_take_is_named() -> None:
    with pytest.raises(UnknownStepError, match="takes no depht"):
        Call(step="language.depths_of", arguments={"depht": 1}).run()


def test_paths_arrive_as_paths(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    folders = [str(tmp_path / name) for name in ("one", "two")]
    Call(step="paper.gather", arguments={"folders": folders, "out": str(tmp_path / "out")}).run()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["one", "two"]


def test_only_what_was_lost_or_says_so_is_worth_another_attempt() -> None:
    assert AttemptResult(vanished="the node went").heals
    assert AttemptResult(StepAnswer(error="MLflow is down", heals=True)).heals
    assert not AttemptResult(StepAnswer(error="bad recipe")).heals
    assert not out_of_memory("step", "4Gi").heals
    assert AttemptResult(StepAnswer(result=1)).reason is None
    assert "micro-batches" in str(out_of_memory("step", "4Gi").reason)

"""`kill -9` at any moment: the same command goes on, and nothing is lost."""

import random
import shutil
import signal
from pathlib import Path

import pytest

from tests.interrupted.project import STAGES, Project, being_written, recipe, require_same, steps_kept

KILLS = 2


@pytest.mark.parametrize(
    "stage",
    [
        "pretrain",
        *(pytest.param(stage, marks=pytest.mark.integration) for stage in ("mini", "adapt", "finetune")),
    ],
)
def test_a_stage_that_is_killed_goes_on_to_the_same_weights(project: Project, tmp_path: Path, stage: str) -> None:
    out, draw = tmp_path / "out", random.Random(stage)
    reached = [0]
    while len(reached) <= KILLS:
        command = project.start(stage, out)
        aim = reached[-1] + draw.randint(1, 20)
        assert command.signalled_when(signal.SIGKILL, lambda: steps_kept(out) >= aim) == -signal.SIGKILL  # noqa: B023
        reached.append(steps_kept(out))
    assert reached == sorted(set(reached))
    said = project.goes_on_to_the_same(stage, out).said
    assert f"going on after step {reached[-1]} of" in said


@pytest.mark.integration
@pytest.mark.parametrize(
    "stage", ["finetune", *(pytest.param(stage, marks=pytest.mark.nightly) for stage in STAGES[:-1])]
)
def test_a_checkpoint_that_was_being_written_is_no_checkpoint(project: Project, tmp_path: Path, stage: str) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        command = project.start(stage, out)
        assert command.signalled_when(signal.SIGKILL, lambda: being_written(out)) == -signal.SIGKILL
    project.goes_on_to_the_same(stage, out)


@pytest.mark.integration
@pytest.mark.parametrize("own_settings", [True, False])
def test_a_run_that_was_killed_right_after_its_result_ends_well_with_its_own_settings_alone(
    project: Project, tmp_path: Path, own_settings: bool
) -> None:
    out = tmp_path / "out"
    command = project.start("mini", out)
    assert command.signalled_when(signal.SIGKILL, lambda: steps_kept(out) > 0) == -signal.SIGKILL
    shutil.copytree(project.whole("mini"), out)
    if own_settings:
        project.goes_on_to_the_same("mini", out)
        return
    other = project.start("mini", out, recipe=recipe(tmp_path / "other", steps=81))
    assert other.ends() == 1
    assert f"{out} exists already" in other.said


@pytest.mark.integration
def test_two_processes_do_not_train_into_one_folder(project: Project, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = project.start("pretrain", out)
    first.wait_until(lambda: steps_kept(out), pause_s=0.001)
    first.send(signal.SIGSTOP)
    second = project.start("pretrain", out)
    assert second.ends() == 1
    assert "out.training is in use by another process" in second.said
    first.send(signal.SIGCONT)
    assert first.ends() == 0, first.said
    require_same("pretrain", out, project.whole("pretrain"))


@pytest.mark.integration
def test_a_curve_of_another_training_is_not_taken_for_ones_own(project: Project, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert project.start("adapt", out, recipe=recipe(tmp_path / "other", steps=81)).ends() == 0
    shutil.rmtree(out)
    command = project.start("adapt", out)
    assert command.ends() == 1
    assert "step-00000000 exists already" in command.said

"""Checkpoints that are torn, cut short, flipped or another's, and disks that take none: the weights stay the same."""

import random
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.forked import Child
from tests.interrupted.commands import Limits
from tests.interrupted.project import Project, checkpoints, recipe, require_same, steps_kept, training

pytestmark = pytest.mark.integration
nightly = pytest.mark.nightly


def interrupted(project: Project, out: Path, stage: str = "mini", at: int = 10) -> None:
    command = project.start(stage, out)
    code = command.signalled_when(signal.SIGKILL, lambda: len(checkpoints(out)) >= 2 and steps_kept(out) >= at)
    assert code == -signal.SIGKILL, command.said


def ended_over_a_read_only_folder(project: Project, out: Path) -> Child:
    try:
        training(out).chmod(0o555)
        command = project.start("mini", out, Limits(as_anybody=True))
        assert command.ends() == 0, command.said
    finally:
        training(out).chmod(0o755)
    return command


def torn(place: Path) -> None:
    (place / "manifest.json").unlink()


def truncated(place: Path) -> None:
    path = place / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def flipped(place: Path) -> None:
    path = place / "state.safetensors"
    content = bytearray(path.read_bytes())
    content[random.Random(1).randrange(len(content))] ^= 4
    path.write_bytes(content)


def emptied(place: Path) -> None:
    for path in place.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    "damage", [flipped, *(pytest.param(each, marks=nightly) for each in (torn, truncated, emptied))]
)
def test_the_checkpoint_before_a_damaged_one_is_used(
    project: Project, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    out = tmp_path / "out"
    interrupted(project, out)
    before, newest = checkpoints(out)[-2:]
    damage(newest)
    command = project.start("mini", out)
    assert command.ends() == 0, command.said
    assert f"a checkpoint is set aside as set-aside-{newest.name}: " in command.said
    assert f"going on after step {int(before.name.removeprefix('step-'))} of 80" in command.said
    assert [place.name for place in training(out).iterdir()] == [f"set-aside-{newest.name}"]
    shutil.rmtree(training(out))
    require_same("mini", out, project.whole("mini"))


def test_where_no_checkpoint_is_whole_training_begins_anew(project: Project, tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupted(project, out)
    places = checkpoints(out)
    for place in places:
        flipped(place)
    command = project.start("mini", out)
    assert command.ends() == 0, command.said
    for place in places:
        assert f"set aside as set-aside-{place.name}: " in command.said
    assert "going on after" not in command.said
    shutil.rmtree(training(out))
    require_same("mini", out, project.whole("mini"))


@pytest.mark.parametrize(
    "pace",
    [
        {"log_every_steps": 9},
        *(pytest.param(pace, marks=nightly) for pace in ({"steps": 81}, {"warmup_steps": 3})),
    ],
    ids=str,
)
def test_a_checkpoint_of_another_recipe_is_not_used(project: Project, tmp_path: Path, pace: dict[str, float]) -> None:
    out = tmp_path / "out"
    command = project.start("mini", out, recipe=recipe(tmp_path / "other", **pace))
    assert command.signalled_when(signal.SIGKILL, lambda: steps_kept(out) >= 5) == -signal.SIGKILL
    (name,) = pace
    again = project.start("mini", out)
    assert again.ends() == 0, again.said
    assert f"belongs to another training: {name} was" in again.said
    shutil.rmtree(training(out))
    require_same("mini", out, project.whole("mini"))


def test_what_does_not_change_the_mathematics_may_change_meanwhile(project: Project, tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupted(project, out)
    seldom = project.start("mini", out, recipe=recipe(tmp_path / "seldom", keep_every_s=1000))
    assert seldom.ends() == 0, seldom.said
    assert "going on after" in seldom.said
    assert (out / "layers.safetensors").read_bytes() == (project.whole("mini") / "layers.safetensors").read_bytes()


def test_a_disk_that_is_full_while_checkpoints_are_written_stops_nothing(project: Project, tmp_path: Path) -> None:
    """Weights and moments do not fit on it, weights alone do."""
    out = tmp_path / "out"
    largest = max(path.stat().st_size for path in project.whole("finetune").iterdir())
    said = project.goes_on_to_the_same("finetune", out, Limits(file_bytes=largest + 4096)).said
    assert "no checkpoint after step" in said
    assert "Training goes on." in said


def test_a_stop_on_a_full_disk_says_that_nothing_was_kept(project: Project, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = project.start("pretrain", out, Limits(file_bytes=4096))
    assert command.signalled_when(signal.SIGTERM, lambda: "step 7/80" in command.said) == 75
    assert "no checkpoint was written. Run the same again to begin anew." in command.said
    project.goes_on_to_the_same("pretrain", out)


def test_a_folder_for_checkpoints_that_is_read_only_stops_nothing(project: Project, tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupted(project, out)
    kept = checkpoints(out)[-1]
    command = ended_over_a_read_only_folder(project, out)
    assert "no checkpoint after step" in command.said
    assert "are of no use any more, but cannot be removed" in command.said
    assert kept in checkpoints(out)
    shutil.rmtree(training(out))
    require_same("mini", out, project.whole("mini"))


def test_where_there_can_be_no_folder_for_checkpoints_training_goes_on(project: Project, tmp_path: Path) -> None:
    out = tmp_path / "out"
    training(out).write_text("in the way")
    command = project.start("mini", out)
    assert command.ends() == 0, command.said
    assert re.search(r"no checkpoint after step \d+: cannot write", command.said)
    assert training(out).read_text() == "in the way"
    training(out).unlink()
    require_same("mini", out, project.whole("mini"))

"""Checkpoints: what is kept, what is never used, and a disk that takes nothing, or slowly."""

import contextlib
import errno
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST, Kind
from lingraft.errors import TrainingError
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.schedule import TrainingMetrics
from lingraft.training.training_state import TrainingState
from tests.workshop import same_tensors

MADE_FROM = {"stage": "pretrain", "blocks": "abc", "shape": {"width": 8, "layers": 2}, "steps": 100}
FILES = [MANIFEST, "state.json", "state.safetensors"]


def state(step: int) -> TrainingState:
    draw = torch.Generator().manual_seed(step)
    optimizer = {f"0000.{name}": torch.randn(3, 4, generator=draw) for name in ("weight", "exp_avg")}
    points = [
        TrainingMetrics(step - 1, 640, 1e9 / 3, 1.1, 2.2, 1e-3 / 7),
        TrainingMetrics(step, 641, 2e9, 1.2, 2.1, 1e-3),
    ]
    losses = [torch.randn((), generator=draw) for _ in range(3)]
    return TrainingState(step, 12.5 + step, points, losses, [3, 4], optimizer)


def checkpointer(folder: Path, **changed: object) -> CheckpointManager:
    return CheckpointManager(folder, MADE_FROM | changed, every_s=1000)


def keep(folder: Path, *steps: int) -> None:
    writer = checkpointer(folder)
    writer.notes = {"precision": "bf16"}
    for step in steps:
        writer.save(state(step))
    writer.wait()


def require_equal(found: TrainingState | None, wanted: TrainingState) -> None:
    assert found is not None
    assert same_tensors(found.tensors(), wanted.tensors())
    assert found.facts() == wanted.facts()


def names(folder: Path) -> list[str]:
    return sorted(place.name for place in folder.iterdir())


def test_the_newest_two_are_kept_and_come_back_to_the_bit(tmp_path: Path) -> None:
    keep(tmp_path, *range(1, 8))
    assert names(tmp_path) == ["step-00000006", "step-00000007"]
    reader = checkpointer(tmp_path)
    require_equal(reader.load_newest(), state(7))
    assert reader.notes == {"precision": "bf16"}


def test_training_goes_on_while_what_it_was_is_written(tmp_path: Path) -> None:
    moving, writer = state(7), checkpointer(tmp_path)
    writer.save(moving)
    moving.optimizer["0000.weight"].zero_()
    moving.losses.clear()
    moving.skipped.append(5)
    moving.points.clear()
    writer.wait()
    require_equal(checkpointer(tmp_path).load_newest(), state(7))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("left", [0, -2, None])
def test_a_file_that_is_cut_short_or_missing_is_named_and_the_checkpoint_before_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, left: int | None
) -> None:
    keep(tmp_path, 6, 7)
    path = tmp_path / "step-00000007" / name
    content = path.read_bytes()
    path.unlink() if left is None else path.write_bytes(content[:left])
    require_equal(checkpointer(tmp_path).load_newest(), state(6))
    assert names(tmp_path) == ["set-aside-step-00000007", "step-00000006"]
    said = capsys.readouterr().err
    assert "a checkpoint is set aside as set-aside-step-00000007" in said
    assert name in said


class Drive:
    """A disk on which, for some tries, files of some name cannot be read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, number: int, tries: int) -> None:
        self.name, self.number, self.tries = name, number, tries
        for reader in ("open", "read_bytes"):
            monkeypatch.setattr(Path, reader, self.refusing(getattr(Path, reader)))
        monkeypatch.setattr(os, "listdir", self.refusing(os.listdir))

    def refusing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def read(path: Path, *given: Any, **named: Any) -> Any:
            if Path(path).name == self.name and self.tries:
                self.tries -= 1
                raise OSError(self.number, os.strerror(self.number), str(path))
            return real(path, *given, **named)

        return read


UNREADABLE = [*FILES, "training"]


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_what_cannot_be_read_for_now_is_no_damage_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    folder = tmp_path / "training"
    keep(folder, 6, 7)
    with monkeypatch.context() as patch:
        Drive(patch, name, number, tries=1000)
        with pytest.raises(
            TrainingError, match=rf"training.* cannot be read: .*{name}.* Run the same again when"
        ) as told:
            checkpointer(folder).load_newest()
    assert os.strerror(number) in str(told.value)
    assert names(folder) == ["step-00000006", "step-00000007"]
    require_equal(checkpointer(folder).load_newest(), state(7))


def test_what_was_left_of_a_checkpoint_being_written_is_removed(tmp_path: Path) -> None:
    keep(tmp_path, 6, 7)
    (tmp_path / "step-00000007").rename(tmp_path / ".step-00000007-abcdefgh")
    require_equal(checkpointer(tmp_path).load_newest(), state(6))
    assert names(tmp_path) == ["step-00000006"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"shape": {"width": 16, "layers": 2}}, "shape.width was 8, is 16"), ({"seed": 2}, "seed was nothing, is 2")],
)
def test_a_checkpoint_of_another_training_is_named_and_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, object], words: str
) -> None:
    keep(tmp_path, 6, 7)
    assert checkpointer(tmp_path, **changed).load_newest() is None
    assert words in capsys.readouterr().err
    assert names(tmp_path) == ["set-aside-step-00000006", "set-aside-step-00000007"]


def rewritten(place: Path, **changes: object) -> None:
    """A whole checkpoint with other facts."""
    found = Artifact.load(place, Kind.TRAINING)
    facts, tensors = json.loads((place / "state.json").read_text()), found.tensors("state")
    shutil.rmtree(place)
    with artifact.create(place, Kind.TRAINING) as draft:
        draft.tensors("state", tensors)
        (draft.folder / "state.json").write_text(json.dumps(facts | changes))


@pytest.mark.parametrize("older", [None, 0, 2])
def test_a_checkpoint_of_another_format_is_named_and_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], older: int | None
) -> None:
    keep(tmp_path, 6, 7)
    rewritten(tmp_path / "step-00000007", format=older, state=["nobody knows"])
    require_equal(checkpointer(tmp_path).load_newest(), state(6))
    assert f"step-00000007 has format {older}; this lingraft reads format 1" in capsys.readouterr().err


def test_where_all_are_damaged_training_begins_anew_and_nothing_is_deleted(tmp_path: Path) -> None:
    for _ in range(2):
        keep(tmp_path, 6, 7)
        for place in tmp_path.glob("step-*"):
            (place / "state.safetensors").write_bytes(b"")
        assert checkpointer(tmp_path).load_newest() is None
    aside = [f"set-aside-step-0000000{step}" for step in (6, 7)]
    assert names(tmp_path) == sorted([*aside, *(f"{name}-1" for name in aside)])


def test_weights_that_are_not_finite_are_never_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, 6)
    writer, broken = checkpointer(tmp_path), state(7)
    broken.optimizer["0000.exp_avg"][1, 2] = torch.nan
    writer.save(broken)
    writer.wait()
    assert "no checkpoint after step 7: 0000.exp_avg is not finite after step 7" in capsys.readouterr().err
    require_equal(checkpointer(tmp_path).load_newest(), state(6))


def test_a_checkpoint_is_due_when_its_time_has_come_and_the_one_before_is_on_disk(tmp_path: Path) -> None:
    assert not checkpointer(tmp_path).is_due()
    writer = CheckpointManager(tmp_path, MADE_FROM, every_s=1e-9)
    assert writer.is_due()
    writer.save(state(1))
    writer.wait()
    assert writer.is_due()


def test_when_all_is_done_only_what_was_set_aside_stays(tmp_path: Path) -> None:
    keep(tmp_path, 6, 7)
    (tmp_path / "step-00000007/state.json").unlink()
    owner = checkpointer(tmp_path)
    owner.load_newest()
    owner.remove()
    assert names(tmp_path) == ["set-aside-step-00000007"]


@contextlib.contextmanager
def refused(*errors: Exception) -> Iterator[threading.Event]:
    """A disk that takes nothing, of the first checkpoints; each is refused when the gate opens."""
    gate, real, left = threading.Event(), safetensors.torch.save_file, [*errors]

    def save(*given: Any) -> None:
        gate.wait(10)
        if left:
            raise left.pop(0)
        real(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", save)
        yield gate


FULL = safetensors.SafetensorError("Error while serializing: IoError(Os { code: 28, kind: StorageFull })")


@pytest.mark.parametrize("error", [FULL, OSError(errno.ENOSPC, "full")])
def test_a_checkpoint_that_cannot_be_written_is_told_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    writer = checkpointer(tmp_path)
    with refused(error) as gate:
        gate.set()
        writer.save(state(6))
        assert not writer.wait()
        writer.save(state(7))
        assert writer.wait()
    said = capsys.readouterr().err
    assert "no checkpoint after step 6: " in said
    assert "Training goes on." in said
    assert names(tmp_path) == ["step-00000007"]


def test_who_stops_relies_on_a_checkpoint_being_written_only_if_it_is_written(tmp_path: Path) -> None:
    for kept_last, errors in ((8, (FULL,)), (7, ())):
        folder = tmp_path / str(kept_last)
        keep(folder, 6)
        writer = checkpointer(folder)
        writer.load_newest()
        with refused(*errors) as gate:
            writer.save(state(7))
            threading.Timer(0.02, gate.set).start()
            writer.save(state(8), last=True)
            writer.wait()
        require_equal(checkpointer(folder).load_newest(), state(kept_last))

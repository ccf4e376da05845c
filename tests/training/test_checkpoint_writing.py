"""Checkpoints that a disk does not take, or takes slowly: training goes on, and a stop loses nothing more."""

import contextlib
import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from lingraft.training.batches import MaskedLmBatch
from tests.training.test_checkpoint import checkpointer, keep, names, require_equal, state


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


@pytest.mark.parametrize("error", [FULL, OSError(errno.ESTALE, "stale"), OSError(errno.ENOSPC, "full")])
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


def test_a_batch_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with refused(FULL) as gate:
        gate.set()
        told = checkpointer(tmp_path).save_batch(5, 1e-3, [(1.0, MaskedLmBatch(torch.ones(2, 2), 7))])
    assert "Its batch is not kept: Error while serializing" in told


def test_who_stops_relies_on_a_checkpoint_being_written_only_if_it_is_written(tmp_path: Path) -> None:
    for kept_last, errors in ((8, (FULL,)), (7, ())):
        folder = tmp_path / str(kept_last)
        keep(folder, 6)
        writer = checkpointer(folder)
        writer.load_newest()
        with refused(*errors) as gate:
            writer.save(state(7))
            threading.Timer(0.1, gate.set).start()
            writer.save(state(8), last=True)
            writer.wait()
        require_equal(checkpointer(folder).load_newest(), state(kept_last))


@pytest.mark.parametrize(("in_haste", "kept_last"), [(False, 8), (True, 7)])
def test_what_training_ended_with_is_kept_beside_the_one_being_written_unless_in_haste(
    tmp_path: Path, in_haste: bool, kept_last: int
) -> None:
    writer = checkpointer(tmp_path)
    with refused() as gate:
        writer.save(state(7))
        threading.Timer(0.1, gate.set).start()
        writer.ended = state(8)
        writer.close(in_haste)
    require_equal(checkpointer(tmp_path).load_newest(), state(kept_last))


def test_an_old_checkpoint_that_stays_is_not_told_as_a_new_one_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, 5, 6)

    def busy(place: Path) -> None:
        raise OSError(errno.EBUSY, "busy", str(place))

    with monkeypatch.context() as patch:
        patch.setattr("lingraft.training.checkpoint._discard", busy)
        keep(tmp_path, 7)
    said = capsys.readouterr().err
    assert "cannot be removed" in said
    assert "no checkpoint" not in said
    assert names(tmp_path) == [f"step-0000000{step}" for step in (5, 6, 7)]
    keep(tmp_path, 8)
    assert names(tmp_path) == ["step-00000007", "step-00000008"]

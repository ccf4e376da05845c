"""What stages do about being interrupted when training itself has ended: nothing is trained again."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.errors import ArtifactError
from lingraft.signals import Interruption, interruptible
from lingraft.stages import pretrain
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.loop import TrainingLoop
from lingraft.training.schedule import TrainingMetrics
from lingraft.training.stage_output import resumable, was_saved_before
from lingraft.training.training_state import TrainingState
from tests.workshop import Workshop, changed


@pytest.fixture
def short(workshop: Workshop) -> Recipe:
    return changed(workshop.recipe, "pretraining", steps=6, warmup_steps=1, log_every_steps=2)


def pretrained(workshop: Workshop, recipe: Recipe, out: Path, watch: Callable[[TrainingMetrics], None]) -> Artifact:
    return pretrain.pretrain(recipe, workshop.blocks["en"], workshop.tokenizers["en"], out, watch)


def kept(out: Path) -> list[str]:
    return sorted(place.name for place in out.with_name(f"{out.name}.training").glob("*"))


def test_a_stop_while_the_result_is_written_and_a_result_that_cannot_be_lose_nothing_of_what_was_trained(
    workshop: Workshop, short: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out = pretrained(workshop, short, tmp_path / "whole", lambda _: None), tmp_path / "out"

    def stopped(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def in_the_way(*_: Any) -> None:
        out.mkdir()
        (out / "other").write_text("of somebody else")

    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "record_training", stopped)
        with pytest.raises(Interruption, match="Run the same again to go on"):
            pretrained(workshop, short, out, lambda _: None)
    assert kept(out) == ["step-00000006"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.training", "whole"]
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "save_vocabulary", in_the_way)
        with pytest.raises(ArtifactError, match="cannot write"):
            pretrained(workshop, short, out, lambda _: None)
    (out / "other").unlink()
    assert kept(out) == ["step-00000006"]
    clock: list[float] = []
    made = pretrained(workshop, short, out, lambda point: clock.append(point.elapsed_s))
    assert made.fingerprint == whole.fingerprint
    assert len(clock) == 3
    assert kept(out) == []


def test_a_stop_that_comes_too_late_for_training_is_heeded_afterwards(
    workshop: Workshop, short: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(TrainingLoop, "_require_finite_end", stopped)
    with pytest.raises(Interruption):
        pretrained(workshop, short, tmp_path / "out", lambda _: None)
    assert kept(tmp_path / "out") == ["step-00000006"]


def test_a_run_killed_between_its_result_and_its_end_tells_its_curve_when_it_is_run_again(
    workshop: Workshop, short: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    first: list[TrainingMetrics] = []
    second: list[TrainingMetrics] = []

    def killed(_: CheckpointManager) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointManager, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            pretrained(workshop, short, out, first.append)
    assert kept(out) == ["step-00000006"]
    pretrained(workshop, short, out, second.append)
    assert second == first
    assert kept(out) == []
    (tmp_path / "out.training/.step-00000006-doomed").mkdir(parents=True)
    with pytest.raises(ArtifactError, match="out exists already"):
        pretrained(workshop, short, out, lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(("dropout", "same"), [(0.0, True), (0.1, False)])
def test_embeddings_along_the_way_are_of_another_training_where_dropout_draws_otherwise(
    workshop: Workshop, dropout: float, same: bool
) -> None:
    made = Artifact.load(workshop.embeddings["de"], Kind.EMBEDDINGS)
    then = workshop.recipe.adaptation
    halved = then.model_copy(update={"micro_batch_blocks": 1})
    facts = {"aligned_with": made.manifest.aligned_with}
    assert was_saved_before(made.folder, then, dropout, facts)
    assert was_saved_before(made.folder, halved, dropout, facts) == same


@pytest.mark.parametrize(("dropout", "decides"), [(0.0, False), (0.1, True)])
def test_the_size_of_micro_batches_decides_a_training_only_where_there_is_dropout(
    workshop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str], dropout: float, decides: bool
) -> None:
    recipe, place = changed(workshop.recipe, "encoder", dropout=dropout), tmp_path / "state"

    def kept_by(at_once: int) -> contextlib.AbstractContextManager[CheckpointManager]:
        settings = recipe.pretraining.model_copy(update={"micro_batch_blocks": at_once})
        return resumable(recipe, tmp_path / "out", settings, {"stage": "pretrain"}, place)

    with kept_by(2) as checkpointer:
        checkpointer.save(TrainingState(3, optimizer={"0000.weight": torch.ones(2)}))
    with kept_by(1) as checkpointer:
        assert (checkpointer.load_newest() is None) == decides
    assert ("micro_batch_blocks was 2, is 1" in capsys.readouterr().err) == decides


def test_a_result_that_fails_beside_a_checkpoint_being_written_loses_nothing_and_a_stop_does_not_wait(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {ArtifactError("in the way"): 6, Interruption(signal.SIGTERM, "asked to stop"): 5}
    for error, last in ends.items():
        place, gate, real = tmp_path / str(last), threading.Event(), CheckpointManager._write
        with monkeypatch.context() as patch:
            patch.setattr(CheckpointManager, "_write", lambda *given: gate.wait(10) and real(*given))  # noqa: B023
            threading.Timer(0.05, gate.set).start()
            with pytest.raises(type(error)):
                end_in(error, workshop.recipe, tmp_path / "out", place)
        assert max(path.name for path in place.iterdir()) == f"step-{last:08d}"


def end_in(error: BaseException, recipe: Recipe, out: Path, place: Path) -> None:
    with resumable(recipe, out, recipe.pretraining, {}, place) as checkpointer:
        checkpointer.save(TrainingState(5))
        checkpointer.ended = TrainingState(6)
        raise error


def test_a_stop_is_a_stop_even_if_what_it_broke_off_trips_over_it() -> None:
    def library() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            raise AttributeError("no lock to release")

    with pytest.raises(Interruption) as caught, interruptible():
        library()
    assert caught.value.exit_code == 75
    with pytest.raises(AttributeError, match="of its own"), interruptible():
        raise AttributeError("of its own")

"""What every stage does about being interrupted, looked at and written: alike, so it stands here once."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, Draft, Kind, read_manifest
from lingraft.artifacts.files import require_new
from lingraft.artifacts.locks import folder_lock, remove_partial_writes
from lingraft.config.recipe import Recipe
from lingraft.config.training import OptimizerSettings, Training
from lingraft.data.shards import Blocks
from lingraft.model.encoder import Encoder
from lingraft.signals import Interruption, interruptible
from lingraft.training import masked_lm
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.distributed import process_group
from lingraft.training.learning_curve import read_curve
from lingraft.training.run import TrainingRun
from lingraft.training.schedule import MetricsCallback

Measure = Callable[[Encoder, Tensor, Iterable[int]], dict[int, float]]
_OF_NO_EFFECT = {"keep_every_s", "recompute"}
"""Settings that may change when an interrupted training goes on: the mathematics stays the same."""
_OF_DROPOUT = {"micro_batch_blocks", "micro_batch_examples"}
"""Settings that decide nothing but what dropout draws, a micro-batch at a time."""


def require_empty(out: Path, state: Path | None) -> None:
    """Refuse an output before long work, unless checkpoints stand beside it: `finished` sees to it then.

    Raises:
        ArtifactError: `out` holds something, or cannot be written.
    """
    checkpoints = itertools.chain.from_iterable(
        _checkpoint_folder(out, state).glob(name) for name in ("step-*", ".step-*")
    )
    if not (_has_output(out) and any(checkpoints)):
        require_new(out)


@contextlib.contextmanager
def resumable(
    recipe: Recipe, out: Path, state: Path | None, settings: OptimizerSettings, made_from: Mapping[str, Any]
) -> Iterator[CheckpointManager]:
    """Keep a stage's checkpoints beside its output, unless they are to stand elsewhere, until its result is on disk.

    Args:
        recipe: which number format it trains in, with how much dropout.
        out: the stage's output.
        state: where checkpoints stand; `<out>.training` if None.
        settings: of the training.
        made_from: what else decides its result, such as the fingerprints of its inputs.

    Raises:
        ArtifactError: another process trains the same at this moment.
        Interruption: the process was asked to stop.
    """
    decisive = {"precision": recipe.precision, **made_from}
    decisive |= _deciding_settings(settings.model_dump(mode="json"), recipe.encoder.dropout)
    place = _checkpoint_folder(out, state)
    with interruptible(), folder_lock(place) if process_group.is_rank_zero() else contextlib.nullcontext():
        checkpointer = CheckpointManager(place, decisive, settings.keep_every_s)
        if process_group.is_rank_zero():
            remove_partial_writes(out)
        try:
            yield checkpointer
        except Interruption:
            checkpointer.close(in_haste=True)
            raise
        finally:
            checkpointer.close()


def already_done(out: Path, kind: Kind, checkpointer: CheckpointManager, watch: MetricsCallback) -> Artifact | None:
    """What a run has made that was killed before it could remove its checkpoints; None if there is still work to do.

    Args:
        out: the stage's output.
        kind: of the artifact there.
        checkpointer: of its checkpoints.
        watch: is told the whole learning curve, which whoever watched the run that was killed may have lost.

    Raises:
        ArtifactError: `out` holds something else, or no checkpoint is whole any more that would say whose it is.
    """
    if not process_group.all_reduce_max(_has_output(out)):
        return None
    if checkpointer.newest() is None:
        require_new(out)
    found = Artifact.load(out, kind)
    for point in read_curve(found.folder):
        watch(point)
    process_group.barrier()
    checkpointer.remove()
    return found


def was_saved_before(folder: Path, settings: OptimizerSettings, dropout: float, facts: Mapping[str, Any]) -> bool:
    """Whether a training before this one, which was interrupted, has saved an artifact on its way.

    Args:
        folder: of the artifact.
        settings: of this training.
        dropout: of its encoder.
        facts: of the manifest that this training would write.
    """
    if not folder.exists():
        return False
    found = read_manifest(folder)
    then, now = (_deciding_settings(each, dropout) for each in (found.recipe, settings.model_dump(mode="json")))
    return then == now and all(getattr(found, name) == facts[name] for name in facts)


def _deciding_settings(settings: Mapping[str, Any], dropout: float) -> dict[str, Any]:
    of_no_effect = _OF_NO_EFFECT if dropout else _OF_NO_EFFECT | _OF_DROPOUT
    return {name: value for name, value in settings.items() if name not in of_no_effect}


def _checkpoint_folder(out: Path, state: Path | None) -> Path:
    return state or out.with_name(f"{out.name}.training")


def _has_output(out: Path) -> bool:
    return out.is_dir() and any(out.iterdir())


def dev_evaluator(
    trained: nn.Module, judged: Encoder, dev: Blocks, settings: Training, measure: Measure = masked_lm.accuracy
) -> Callable[[], float]:
    """Masked accuracy, or another measure, of a model's last head on the first dev blocks.

    Args:
        trained: what is in training, and goes on with it after a look.
        judged: what is looked at, for example the primary with the embeddings that a mini-model is learning.
        dev: its blocks.
        settings: how many of them.
        measure: of `lingraft.training.masked_lm`.
    """
    top = judged.shape.layers

    def score() -> float:
        found = measure(judged, dev.take(torch.arange(min(settings.judged_blocks, len(dev)))), (top,))[top]
        trained.train()
        return found

    return score


def save_result(out: Path, kind: Kind, fill: Callable[[Draft], None], run: TrainingRun) -> Artifact:
    """Write what a run has trained, once however many processes trained it, and remove its checkpoints.

    Raises:
        ArtifactError: it cannot be written; the checkpoints stay.
    """
    if process_group.is_rank_zero():
        with artifact.create(out, kind) as draft:
            fill(draft)
    process_group.barrier()
    made = Artifact.load(out, kind)
    run.forget()
    return made

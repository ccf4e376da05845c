"""The output of a training stage: checkpoints beside it while it trains, and the artifact at the end."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lingraft import ranks
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, Draft
from lingraft.artifacts.files import require_new
from lingraft.artifacts.locks import folder_lock, remove_partial_writes
from lingraft.artifacts.manifest import Kind, read_manifest
from lingraft.config.recipe import Recipe
from lingraft.config.training import Pace
from lingraft.signals import Interruption, interruptible
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.distributed import process_group
from lingraft.training.schedule import MetricsCallback, read_curve

_WITHOUT_EFFECT = {"keep_every_s"}
"""Settings that may change when an interrupted training goes on: the mathematics stays the same."""
_OF_DROPOUT = {"micro_batch_blocks"}
"""Settings that decide nothing but what dropout draws, a micro-batch at a time."""


def require_empty(out: Path) -> None:
    """Refuse an output before long work, unless checkpoints lie beside it: `already_done` sees to it then.

    Raises:
        ArtifactError: `out` holds something, or cannot be written.
    """
    place = _checkpoint_folder(out)
    if not (_has_output(out) and any(itertools.chain(place.glob("step-*"), place.glob(".step-*")))):
        require_new(out)


@contextlib.contextmanager
def resumable(
    recipe: Recipe,
    out: Path,
    settings: Pace,
    made_from: Mapping[str, Any],
    state: Path | None = None,
) -> Iterator[CheckpointManager]:
    """Yield the manager of a stage's checkpoints, which lie beside its output, or in `state`.

    `made_from` is what decides the result beside the settings, such as the fingerprints of inputs.

    Raises:
        ArtifactError: another process runs the same training at this moment.
        Interruption: the process was asked to stop.
    """
    decisive = {"precision": recipe.precision, **made_from}
    decisive |= _deciding_settings(settings.model_dump(mode="json"), recipe.encoder.dropout)
    place = state or _checkpoint_folder(out)
    with interruptible(), folder_lock(place) if ranks.is_rank_zero() else contextlib.nullcontext():
        checkpointer = CheckpointManager(place, decisive, settings.keep_every_s)
        if ranks.is_rank_zero():
            remove_partial_writes(out)
        try:
            yield checkpointer
        except Interruption:
            checkpointer.close(in_haste=True)
            raise
        finally:
            checkpointer.close()


def already_done(out: Path, kind: Kind, checkpointer: CheckpointManager, watch: MetricsCallback) -> Artifact | None:
    """Return the result of a run that was killed before it could remove its checkpoints; None if there is work to do.

    `watch` hears the whole learning curve, which the watcher of the killed run may have lost.

    Raises:
        ArtifactError: `out` holds something else, or no checkpoint is whole any more that would say whose it is.
    """
    if not process_group.all_reduce_max(_has_output(out)):
        return None
    if checkpointer.load_newest() is None:
        require_new(out)
    found = Artifact.load(out, kind)
    for point in read_curve(found.folder):
        watch(point)
    process_group.barrier()
    checkpointer.remove()
    return found


def save_result(out: Path, kind: Kind, fill: Callable[[Draft], None], checkpointer: CheckpointManager) -> Artifact:
    """Write the result of a training, once however many processes there are, and remove its checkpoints.

    Raises:
        ArtifactError: it cannot be written; the checkpoints stay.
    """
    if ranks.is_rank_zero():
        checkpointer.wait()
        with artifact.create(out, kind) as draft:
            fill(draft)
    process_group.barrier()
    made = Artifact.load(out, kind)
    checkpointer.remove()
    return made


def was_saved_before(folder: Path, settings: Pace, dropout: float, facts: Mapping[str, Any]) -> bool:
    """Return whether this training has saved an artifact on its way before it was interrupted."""
    if not folder.exists():
        return False
    found = read_manifest(folder)
    then, now = (_deciding_settings(each, dropout) for each in (found.recipe, settings.model_dump(mode="json")))
    return then == now and all(getattr(found, name) == facts[name] for name in facts)


def _deciding_settings(settings: Mapping[str, Any], dropout: float) -> dict[str, Any]:
    without_effect = _WITHOUT_EFFECT if dropout else _WITHOUT_EFFECT | _OF_DROPOUT
    return {name: value for name, value in settings.items() if name not in without_effect}


def _checkpoint_folder(out: Path) -> Path:
    return out.with_name(f"{out.name}.training")


def _has_output(out: Path) -> bool:
    return out.is_dir() and any(out.iterdir())

"""What every stage does about being interrupted, looked at and written: alike, so it stands here once."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from lingraft import artifact, masked_lm, processes
from lingraft.artifact import Artifact, Draft, Kind
from lingraft.encoder import Encoder
from lingraft.pace_config import Pace
from lingraft.runs import Run
from lingraft.shards import Blocks
from lingraft.training_config import Training
from lingraft.training_state import Keeper

_OF_NO_EFFECT = {"keep_every_s", "recompute", "micro_batch_blocks", "micro_batch_examples"}
"""Settings that may change when an interrupted training goes on: the mathematics stays the same."""


def keeper_of(out: Path, state: Path | None, settings: Pace, made_from: Mapping[str, Any]) -> Keeper:
    """Keeps a stage's checkpoints beside its output, unless they are to stand elsewhere.

    Args:
        out: the stage's output.
        state: where checkpoints stand; `<out>.training` if None.
        settings: of the training.
        made_from: what else decides its result, such as the fingerprints of its inputs.
    """
    decisive = settings.model_dump(mode="json", exclude=_OF_NO_EFFECT)
    return Keeper(state or out.with_name(f"{out.name}.training"), {**made_from, **decisive}, settings.keep_every_s)


def masked_judge(trained: Encoder, judged: Encoder, dev: Blocks, settings: Training) -> Callable[[], float]:
    """Masked accuracy of a model's last head on the first dev blocks.

    Args:
        trained: what is in training, and goes on with it after a look.
        judged: what is looked at, for example the primary with the embeddings that a mini-model is learning.
        dev: its blocks.
        settings: how many of them.
    """
    top = judged.shape.layers

    def score() -> float:
        found = masked_lm.accuracy(judged, dev.take(torch.arange(min(settings.judged_blocks, len(dev)))), (top,))[top]
        trained.train()
        return found

    return score


def saved(out: Path, kind: Kind, fill: Callable[[Draft], None], run: Run) -> Artifact:
    """Write what a run has trained, once however many processes trained it, and remove its checkpoints.

    Raises:
        ArtifactError: it cannot be written; the checkpoints stay.
    """
    if processes.leads():
        with artifact.create(out, kind) as draft:
            fill(draft)
    processes.wait()
    run.forget()
    return Artifact.load(out, kind)

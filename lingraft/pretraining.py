"""Pretraining, within windows first where the recipe asks for that."""

from collections.abc import Callable
from typing import Any

from lingraft.config import Recipe
from lingraft.encoder import Encoder
from lingraft.keeper import Keeper
from lingraft.runs import Run, masked_lm_phase, phased_run
from lingraft.shards import Blocks
from lingraft.systems import Step
from lingraft.trained import trained_by


def pretraining_run(
    recipe: Recipe,
    step: Step,
    encoder: Encoder,
    blocks: Blocks,
    keeper: Keeper | None = None,
    judge: Callable[[], float] | None = None,
) -> Run:
    """Masked language modelling of everything, in the source language (paper section 2, step 1).

    Attention begins uniform. A neighbour is more of what it sees in a window than in a block, and so stands out of the
    noise of a batch sooner; BERT, too, began on 128 of 512 tokens (Devlin et al. 2019, appendix A.2). Weights, moments
    and the schedule go on at the change to whole blocks as if there were none.

    Args:
        recipe: with its [pretraining].
        step: of pretraining.
        encoder: what is trained.
        blocks: to train on.
        keeper: keeps checkpoints, and finds the one to go on from.
        judge: the dev score, where the settings ask for looks at it.

    Raises:
        RecipeError: the batch cannot be divided over the processes.
    """
    settings = recipe.pretraining
    phases = [masked_lm_phase(recipe, step, encoder, settings)]
    if windows := settings.windows:
        end: dict[str, Any] = {"ends_at": windows.steps, "is_last": False}
        phases.insert(0, masked_lm_phase(recipe, step, encoder, settings, window=windows.tokens, **end))
    return phased_run(recipe, phases, trained_by(step, encoder), blocks, settings, keeper, judge)

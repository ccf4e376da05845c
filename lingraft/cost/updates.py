"""What an update costs under a recipe."""

from lingraft.config import Recipe
from lingraft.cost.formulas import Work, flops_per_update
from lingraft.systems import Step
from lingraft.task_config import Finetuning
from lingraft.training_config import Training


def work_of(recipe: Recipe, step: Step, settings: Training, vocabulary: int) -> Work:
    """Shape of an update of masked language modelling, over whole blocks.

    Args:
        recipe: shape.
        step: layers and heads.
        settings: the batch.
        vocabulary: pieces of the language.
    """
    shape, heads = recipe.encoder, len(step.heads)
    blocks = shape.block_tokens, settings.batch_blocks
    return Work(step.layers, shape.width, vocabulary, *blocks, settings.mask_rate, heads)


def finetuning_work(recipe: Recipe, step: Step, settings: Finetuning) -> Work:
    """Shape of an update of a task's finetuning, every example as long as a block; no MLM head is passed."""
    shape = recipe.encoder
    return Work(step.layers, shape.width, 0, shape.block_tokens, settings.batch_examples, mask_rate=0.0, heads=0)


def step_flops(recipe: Recipe, step: Step, settings: Training, vocabulary: int, window: int | None = None) -> float:
    """FLOPs of such an update, by the paper's formulas; attention stays within windows of so many tokens, if given."""
    work = work_of(recipe, step, settings, vocabulary)
    return flops_per_update(step, work.within(window) if window else work)

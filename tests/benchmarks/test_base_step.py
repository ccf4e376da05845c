"""One optimizer step of every stage: of the base recipe's own shape, and of a small one in the fast suite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import base_step
from lingraft.config.recipe import Recipe

BASE = Recipe.load(Path(__file__).parents[2] / "recipes" / "base.toml")
STAGES = ["finetuning", "adaptation over 4", "step 1b", "pretraining"]


def shrunk() -> Recipe:
    shape = BASE.encoder.model_copy(update={"width": 24, "block_tokens": 16})
    vocabulary = BASE.tokenizer.model_copy(update={"vocabulary": 100})
    return BASE.model_copy(update={"encoder": shape, "tokenizer": vocabulary, "precision": "fp32"})


def measured(recipe: Recipe) -> Iterator[tuple[str, dict[str, float]]]:
    for name, prepare in base_step.stages(recipe):
        yield name, base_step.measured(prepare)


def test_every_stage_takes_one_step_of_as_many_blocks_as_it_is_asked_for() -> None:
    found = dict(measured(base_step.one_update(shrunk(), at_once=2, blocks=6)))
    assert list(found) == STAGES
    assert {found[name]["tokens"] for name in STAGES[1:]} == {6 * 16}
    assert found["finetuning"]["tokens"] == 32 * 16
    flops = [found[name]["tflop"] for name in STAGES[1:]]
    assert flops[0] < flops[-1]


@pytest.mark.nightly
def test_every_stage_takes_a_step_at_the_base_shape_in_micro_batches() -> None:
    """Four blocks, one at a time; `python -m benchmarks.base_step` does all 2,048."""
    recipe = base_step.one_update(BASE, at_once=1, blocks=4)
    tasks = [
        task.model_copy(update={"finetuning": task.finetuning.model_copy(update={"batch_examples": 2})})
        for task in recipe.tasks
    ]
    found = dict(measured(recipe.model_copy(update={"tasks": tuple(tasks)})))
    assert list(found) == STAGES
    assert {found[name]["tokens"] for name in STAGES[1:]} == {4 * 512}
    untrained = 10.8  # ln(50,000): every piece is as likely as any other
    assert all(abs(found[name]["loss"] - untrained) < 1 for name in STAGES[1:])

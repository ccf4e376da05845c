"""The paper's figures (appendix A.1) for its settings: RoBERTa-base, 125,000 updates of 2,048 blocks of 512 tokens."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from lingraft.config.encoder import Family
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, Step, System, TrainedPart
from lingraft.errors import LingraftError
from lingraft.model.flops import UpdateShape, flops_per_update, mlm_update_shape

BASE = Recipe.load(Path(__file__).parents[2] / "recipes" / "base.toml")
UPDATES = 125_000
EXA = 1e18
PAPER = UpdateShape(layers=12, width=768, vocabulary=50_000, block_tokens=512, batch_blocks=2048, mask_rate=0.15)


def paper(**changes: Any) -> UpdateShape:
    return dataclasses.replace(PAPER, **changes)


def exaflops(flops_per_update: float) -> float:
    return round(UPDATES * flops_per_update / EXA, 2)


@pytest.mark.parametrize(("layers", "expected"), [(2, 12.82), (12, 54.05)])
def test_adaptation_costs_what_the_paper_says(layers: int, expected: float) -> None:
    assert exaflops(paper(layers=layers).adaptation_flops()) == expected


@pytest.mark.parametrize(("layers", "heads", "expected"), [(4, 1, 29.34), (12, 1, 78.82), (12, 2, 83.42)])
def test_pretraining_costs_what_the_paper_says(layers: int, heads: int, expected: float) -> None:
    assert exaflops(paper(layers=layers, heads=heads).pretraining_flops()) == expected


def test_step_1b_costs_what_the_paper_says() -> None:
    assert exaflops(paper(layers=6).graft_flops(trained_layers=2)) == 21.62


def test_a_tiny_update_costs_what_a_hand_computes() -> None:
    """With s = 2, h = 3, V = 5, B = 7, p = 1/2: a layer is 432 + 48 = 480, a projection 60, and a head 18 + 30 = 48."""
    tiny = UpdateShape(layers=4, width=3, vocabulary=5, block_tokens=2, batch_blocks=7, mask_rate=0.5)
    assert tiny.pretraining_flops() == 3 * 7 * (4 * 480 + 48)
    assert dataclasses.replace(tiny, heads=2).pretraining_flops() == 3 * 7 * (4 * 480 + 96)
    assert tiny.adaptation_flops() == 7 * (2 * 4 * 480 + 2 * 48 + 30)
    assert tiny.graft_flops(trained_layers=1) == 7 * (5 * 480 + 96)
    assert tiny.graft_flops(trained_layers=3) == 7 * (9 * 480 + 96)


@pytest.mark.parametrize("trained_layers", [0, 7])
def test_only_layers_that_there_are_can_be_trained(trained_layers: int) -> None:
    with pytest.raises(LingraftError, match=f"trained_layers {trained_layers} .* 1 to the 6"):
        paper(layers=6).graft_flops(trained_layers)


@pytest.mark.parametrize(
    ("trained", "expected"),
    [
        (TrainedPart.EVERYTHING, paper(layers=6).pretraining_flops()),
        (TrainedPart.EMBEDDINGS, paper(layers=6).adaptation_flops()),
        (TrainedPart.FRESH_LAYERS, paper(layers=6).graft_flops(2)),
    ],
)
def test_what_a_step_trains_decides_the_equation(trained: TrainedPart, expected: float) -> None:
    step = Step(Stage.ADAPT, trained, layers=6, heads=(6,), fresh_layers=2)
    assert flops_per_update(step, paper(layers=6)) == expected


def test_finetuning_is_three_passes_through_the_layers() -> None:
    tiny = UpdateShape(layers=4, width=3, vocabulary=0, block_tokens=2, batch_blocks=7, mask_rate=0.0, heads=0)
    assert flops_per_update(Step(Stage.FINETUNE, TrainedPart.BODY, layers=4), tiny) == 3 * 7 * 4 * 480


def training_flops(recipe: Recipe, system: System, depth: int) -> dict[Stage, float]:
    """FLOPs of each training on masked tokens that a system needs, of one seed and one language."""
    settings = {Stage.PRETRAIN: recipe.pretraining, Stage.BUILD_MINI: recipe.mini, Stage.ADAPT: recipe.adaptation}
    trained = {step.stage: (step, settings.get(step.stage)) for step in recipe.steps_over(depth, system).values()}
    return {
        stage: training.steps
        * flops_per_update(step, mlm_update_shape(recipe, step, training, recipe.tokenizer.vocabulary))
        for stage, (step, training) in trained.items()
        if training
    }


def test_the_four_systems_cost_what_the_paper_says() -> None:
    found = {
        system: {stage: round(flops / EXA, 2) for stage, flops in training_flops(BASE, system, 4).items()}
        for system in System
    }
    pretrain, mini, adapt = Stage.PRETRAIN, Stage.BUILD_MINI, Stage.ADAPT
    assert found == {
        System.BL_BASE: {pretrain: 78.82, adapt: 54.05},
        System.BL_SMALL: {pretrain: 29.34, adapt: 21.07},
        System.MINIJOINT: {pretrain: 83.42, adapt: 21.07},
        System.MINIPOST: {pretrain: 78.82, mini: 21.62, adapt: 29.32},
    }


def test_pre_norm_layers_cost_each_system_what_their_widths_and_windows_do() -> None:
    """GeGLU of 2,048 has the weights of a plain layer of 3,072; two of three layers see 192 keys, not 512."""
    shape = BASE.encoder.model_copy(update={"family": Family.model_validate("modern")})
    modern = BASE.model_copy(update={"encoder": shape})
    for system, layers in ((System.BL_BASE, 12), (System.MINIJOINT, 4)):
        plain, gated = (training_flops(recipe, system, 4)[Stage.ADAPT] for recipe in (BASE, modern))
        local = sum(number % 3 > 0 for number in range(layers))
        assert plain - gated == pytest.approx(2 * local * 512 * 4 * 768 * (512 - 192) * 2048 * UPDATES)

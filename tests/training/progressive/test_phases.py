"""What a progressive adaptation learns, over which depths, for how long, and at what cost."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.systems import Stage
from lingraft.data.blocks import open_split
from lingraft.model.flops import UpdateShape
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.model.swap import swap
from lingraft.stages.adapt import adapt, adaptation_run, mini_of
from lingraft.stages.embeddings import initial_rows
from lingraft.training import masked_lm
from lingraft.training.schedule import ignore_metrics, read_curve
from tests.training.progressive.project import (
    DEPTHS,
    DEV_LOSS,
    FIXED,
    SWITCHES,
    by_switch,
    flops_at,
    learned,
    phases,
    progressive,
    vocabulary,
)
from tests.workshop import Workshop, same_tensors

TABLE_AND_BIAS = 2


class Seen(NamedTuple):
    """What AdamW trains and remembers, before or after one of its steps."""

    when: str
    weights: list[Tensor]
    moments: list[dict[str, Tensor]]


@pytest.fixture(scope="module")
def made(workshop: Workshop) -> dict[str, Path]:
    return by_switch(workshop)


@pytest.fixture
def optimized() -> Iterator[list[Seen]]:
    """Copies from before and after each step."""
    seen: list[Seen] = []

    def note(when: str) -> Any:
        def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            state = [{name: value.clone() for name, value in optimizer.state[weight].items()} for weight in weights]
            seen.append(Seen(when, [weight.detach().clone() for weight in weights], state))

        return look

    hooks = [register_optimizer_step_pre_hook(note("before")), register_optimizer_step_post_hook(note("after"))]
    yield seen
    for hook in hooks:
        hook.remove()


def test_over_one_depth_and_over_another_than_the_recipes_own_it_is_the_plain_adaptation_to_the_bit(
    workshop: Workshop, tmp_path: Path
) -> None:
    plain = learned(workshop, progressive(workshop.recipe, None, depth=2), tmp_path / "plain")
    switch = {"kind": "dev_loss", "look_every_steps": 2, "depths": [2]}
    alone = learned(workshop, progressive(workshop.recipe, switch, depth=2), tmp_path / "alone")
    assert vocabulary(alone.folder) == vocabulary(plain.folder)
    for one, other in zip(read_curve(alone.folder), read_curve(plain.folder), strict=True):
        assert one._replace(elapsed_s=0, depth=None) == other._replace(elapsed_s=0)
    assert alone.manifest.cost.flops == plain.manifest.cost.flops
    assert alone.manifest.details["phases"] == [{"depth": 2, "steps": 8, "flops": plain.manifest.cost.flops}]
    recipe, german = progressive(workshop.recipe, FIXED), (workshop.blocks["de"], workshop.tokenizers["de"])
    asked = adapt(recipe, workshop.primary, *german, 2, tmp_path / "asked", ignore_metrics)
    assert asked.fingerprint == plain.fingerprint
    assert "phases" not in asked.manifest.details


@pytest.mark.parametrize("name", SWITCHES)
def test_every_depth_has_its_turn_in_order(made: dict[str, Path], name: str) -> None:
    depths = [point.depth for point in read_curve(made[name])]
    assert depths == sorted(depths, key=lambda depth: depth or 0)
    assert [phase["depth"] for phase in phases(made[name])] == DEPTHS == sorted({*depths}, key=lambda depth: depth or 0)
    assert [depths.count(phase["depth"]) for phase in phases(made[name])] == [p["steps"] for p in phases(made[name])]


@pytest.mark.parametrize("name", SWITCHES)
def test_the_cost_is_equation_a3_of_each_depth_summed_and_that_of_the_deepest_alone_within_an_update(
    workshop: Workshop, made: dict[str, Path], name: str
) -> None:
    shape, found = workshop.recipe.encoder, phases(made[name])
    each = [UpdateShape(phase["depth"], shape.width, 120, shape.block_tokens, 4, 0.15) for phase in found]
    expected = [phase["steps"] * work.adaptation_flops() for phase, work in zip(found, each, strict=True)]
    assert [phase["flops"] for phase in found] == pytest.approx(expected)
    cost = Artifact.load(made[name], Kind.EMBEDDINGS).manifest.cost
    assert cost.flops == pytest.approx(sum(expected))
    assert (cost.steps, cost.tokens) == (sum(phase["steps"] for phase in found), cost.steps * 4 * shape.block_tokens)
    update = flops_at(progressive(workshop.recipe, None), 3)
    assert 7 * update < cost.flops <= 8 * update * (1 + 1e-9)


@pytest.mark.parametrize("name", SWITCHES)
def test_one_schedule_of_learning_rates_goes_over_all_flops(
    workshop: Workshop, made: dict[str, Path], name: str
) -> None:
    recipe = progressive(workshop.recipe, None)
    settings, update = recipe.adaptation, flops_at(recipe, 3)
    for point in read_curve(made[name]):
        place = point.flops / update
        rising = settings.learning_rate * place / settings.warmup_steps
        falling = settings.learning_rate * (settings.steps + 1 - place) / (settings.steps + 1 - settings.warmup_steps)
        assert point.learning_rate == pytest.approx(min(rising, falling))


def test_the_dev_loss_switches_where_its_rule_says(made: dict[str, Path]) -> None:
    looks = [point for point in read_curve(made["dev_loss"]) if point.dev_loss is not None]
    first, last = 0, 0
    for phase in phases(made["dev_loss"])[:-1]:
        last += phase["steps"]
        own = [point for point in looks if first <= point.step <= last]
        rates = [((a.dev_loss or 0) - (b.dev_loss or 0)) / (b.flops - a.flops) for a, b in pairwise(own)]
        reached = [rate <= max(0, 0.9 * max(rates[: n + 1])) for n, rate in enumerate(rates)]
        assert reached == [False] * (len(rates) - 1) + [True]
        first = last


def test_the_dev_loss_is_the_primarys_with_the_rows_learned_so_far(
    workshop: Workshop, made: dict[str, Path], tmp_path: Path
) -> None:
    recipe = progressive(workshop.recipe, DEV_LOSS, early_checkpoints=[2])
    learned(workshop, recipe, tmp_path / "again", checkpoints=tmp_path / "along")
    primary = load_primary(workshop.primary)
    swap(primary.encoder, load_embeddings(tmp_path / "along" / "step-00000002").vocabulary)
    dev_NT = open_split(Artifact.load(workshop.blocks["de"], Kind.BLOCKS), "dev").take(torch.arange(16))
    found = masked_lm.mean_loss(primary.encoder, dev_NT, (3,))[3]
    assert [p.dev_loss for p in read_curve(made["dev_loss"]) if p.step == 2] == [pytest.approx(found, rel=1e-6)]


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
def test_rows_and_moments_are_handed_over_to_the_bit_and_all_else_is_frozen(
    workshop: Workshop, optimized: list[Seen], switch: dict[str, Any]
) -> None:
    recipe, primary = progressive(workshop.recipe, switch), load_primary(workshop.primary)
    settings, data = recipe.adaptation, Artifact.load(workshop.blocks["de"], Kind.BLOCKS)
    assert settings.progressive
    before = {name: tensor.clone() for name, tensor in primary.encoder.body_tensors().items()}
    own = {name: tensor.clone() for name, tensor in primary.encoder.vocabulary.state_dict().items()}
    steps = [recipe.steps_over(depth)[Stage.ADAPT] for depth in DEPTHS]
    minis = [mini_of(primary, step, None) for step in steps]
    rows = initial_rows(recipe, primary, load_embeddings(workshop.embeddings["de"]).tokenizer)
    run = adaptation_run(
        recipe=recipe,
        steps=steps,
        minis=minis,
        rows=rows,
        blocks=open_split(data, "train"),
        settings=settings,
        dev_loss=iter([3.0, 3.0, 3.0, 3.0]).__next__,
        switch=settings.progressive,
    )
    points = list(run.points)
    assert {point.depth for point in points} == {*DEPTHS}
    assert same_tensors(primary.encoder.body_tensors(), before)
    assert same_tensors(primary.encoder.vocabulary.state_dict(), own)
    assert [seen.when for seen in optimized] == ["before", "after"] * len(points)
    for left, found in zip(optimized[1::2], optimized[2::2], strict=False):
        assert len(left.weights) == len(found.weights) == TABLE_AND_BIAS
        assert all(map(torch.equal, left.weights, found.weights))
        assert all(map(same_tensors, left.moments, found.moments))
    assert float(optimized[-1].moments[0]["step"]) == len(points)


def test_the_best_weights_of_any_depth_come_back(workshop: Workshop, tmp_path: Path) -> None:
    recipe = progressive(workshop.recipe, FIXED, judge_every_steps=1, checkpoint_every_steps=1, learning_rate=0.5)
    found = learned(workshop, recipe, tmp_path / "out", checkpoints=tmp_path / "along")
    best = found.manifest.record["best_step"]
    assert best < found.manifest.cost.steps
    assert vocabulary(found.folder) == vocabulary(tmp_path / "along" / f"step-{best:08d}")


def test_patience_ends_all_depths(workshop: Workshop, tmp_path: Path) -> None:
    recipe = progressive(workshop.recipe, FIXED, judge_every_steps=1, patience=1, learning_rate=0.5, steps=40)
    found = learned(workshop, recipe, tmp_path / "out")
    assert found.manifest.cost.steps == found.manifest.record["best_step"] + 1 < 40
    assert sum(phase["steps"] for phase in found.manifest.details["phases"]) == found.manifest.cost.steps


def test_a_budget_of_flops_ends_all_depths(workshop: Workshop, tmp_path: Path) -> None:
    update = flops_at(progressive(workshop.recipe, None), 3)
    found = learned(workshop, progressive(workshop.recipe, FIXED, flop_budget=3 * update), tmp_path / "out")
    assert 2 * update < found.manifest.cost.flops <= 3 * update
    assert [phase["depth"] for phase in found.manifest.details["phases"]] == [1, 2]

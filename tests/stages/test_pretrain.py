"""Pretraining that begins within windows, by Muon, or forgets: what it sees and costs, and where it goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.config.training import Pretraining, Windows
from lingraft.data.blocks import load_blocks, open_split
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import INITIAL_STD
from lingraft.model.flops import UpdateShape
from lingraft.reports.cost.bill import bills
from lingraft.signals import Interruption
from lingraft.stages.pretrain import pretrain
from lingraft.stages.vectors import vectors_of
from lingraft.training.schedule import MetricsCallback, ignore_metrics, read_curve
from tests.fixtures import once
from tests.interrupted.project import facts, history
from tests.workshop import Workshop, changed, stopping_after

WITHIN = 3


@pytest.fixture(scope="module")
def recipe(workshop: Workshop) -> Recipe:
    """Three of seven updates within windows of eight tokens."""
    return changed(
        workshop.recipe,
        "pretraining",
        windows=Windows(tokens=8, steps=WITHIN),
        optimizer="muon",
        steps=7,
        warmup_steps=1,
        log_every_steps=1,
        judge_every_steps=2,
    )


def pretrained(workshop: Workshop, recipe: Recipe, out: Path, watch: MetricsCallback = ignore_metrics) -> Artifact:
    return pretrain(recipe, workshop.blocks["en"], workshop.tokenizers["en"], out, watch)


@pytest.fixture(scope="module")
def whole(workshop: Workshop, recipe: Recipe) -> Artifact:
    """What an uninterrupted pretraining makes."""
    folder = once.folder("windows", lambda place: pretrained(workshop, recipe, place / "en"), recipe.to_json())
    return Artifact.load(folder / "en", Kind.PRIMARY)


def test_windows_change_what_is_trained_unless_as_long_as_a_block_and_no_schedule(
    workshop: Workshop, recipe: Recipe, whole: Artifact, tmp_path: Path
) -> None:
    long = Windows(tokens=recipe.encoder.block_tokens, steps=3)
    other, same = (
        pretrained(workshop, changed(recipe, "pretraining", windows=windows), tmp_path / str(place))
        for place, windows in enumerate((None, long))
    )
    assert whole.fingerprint != other.fingerprint
    ours, theirs = read_curve(whole.folder), read_curve(other.folder)
    for name in ("step", "tokens", "learning_rate"):
        assert [getattr(point, name) for point in ours] == [getattr(point, name) for point in theirs]
    assert same.manifest.fingerprints == other.manifest.fingerprints


def test_an_update_within_windows_costs_what_short_blocks_would(recipe: Recipe, whole: Artifact) -> None:
    shape, settings = recipe.encoder, recipe.pretraining
    sizes = shape.layers, shape.width, recipe.tokenizer.vocabulary
    short = UpdateShape(
        *sizes, 8, 4 * settings.batch_blocks, settings.mask_rate, len(shape.mlm_heads)
    ).pretraining_flops()
    long = UpdateShape(*sizes, 32, settings.batch_blocks, settings.mask_rate, len(shape.mlm_heads)).pretraining_flops()
    assert short < long
    spent = [point.flops for point in read_curve(whole.folder)]
    assert spent == pytest.approx([min(step, WITHIN) * short + max(0, step - WITHIN) * long for step in range(1, 8)])
    (bill,), _ = bills(recipe, (System.MINIJOINT,))
    within, after, _ = bill.runs
    assert (within.updates, after.updates) == (WITHIN, 7 - WITHIN)
    assert within.flops + after.flops == pytest.approx(spent[-1])


def test_stopped_before_at_and_after_the_last_update_within_windows_it_ends_with_the_same_bits(
    workshop: Workshop, recipe: Recipe, whole: Artifact, tmp_path: Path
) -> None:
    require_equal_if_stopped(workshop, recipe, whole, tmp_path / "out")


def require_equal_if_stopped(workshop: Workshop, recipe: Recipe, whole: Artifact, out: Path) -> None:
    for step in (WITHIN - 1, WITHIN, WITHIN + 1):
        with pytest.raises(Interruption, match="asked to stop"):
            pretrained(workshop, recipe, out, stopping_after(step))
    again = pretrained(workshop, recipe, out)
    assert again.manifest.fingerprints == whole.manifest.fingerprints
    assert (history(out), facts(out)) == (history(whole.folder), facts(whole.folder))


def test_muon_makes_another_primary(workshop: Workshop, recipe: Recipe, whole: Artifact, tmp_path: Path) -> None:
    other = pretrained(workshop, changed(recipe, "pretraining", optimizer="adamw"), tmp_path / "out")
    assert whole.manifest.fingerprints["body"] != other.manifest.fingerprints["body"]


def test_a_recipe_without_windows_and_forgetting_and_with_adamw_keeps_its_digest(
    workshop: Workshop, forgetful: Recipe
) -> None:
    assert not {"windows", "optimizer", "forget_every"} & workshop.recipe.pretraining.model_dump(mode="json").keys()
    for without in ({"windows": None}, {"optimizer": "adamw"}, {"forget_every": None}):
        assert forgetful.digest() != changed(forgetful, "pretraining", **without).digest()


@pytest.fixture(scope="module")
def forgetful(recipe: Recipe) -> Recipe:
    """Ten updates that forget after the third, with which windows end, and after the sixth, but not the ninth."""
    return changed(recipe, "pretraining", forget_every=WITHIN, steps=10, judge_every_steps=0)


class Held(NamedTuple):
    """What AdamW has of a parameter."""

    weight: Tensor
    moments: tuple[Tensor, ...]
    """Empty before its first step."""


@contextmanager
def noted(adamw: dict[str, list[dict[Tensor, Held]]]) -> Iterator[None]:
    """Note all that AdamW has, before and after each of its steps."""

    def held(optimizer: torch.optim.Optimizer) -> dict[Tensor, Held]:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        moments = {parameter: optimizer.state.get(parameter, {}).values() for parameter in parameters}
        return {each: Held(each.detach().clone(), tuple(m.clone() for m in moments[each])) for each in parameters}

    def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        adamw["before"].append(held(optimizer))

    def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        adamw["after"].append(held(optimizer))

    hooks = register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)
    yield
    for hook in hooks:
        hook.remove()


def forgotten(workshop: Workshop, recipe: Recipe, out: Path) -> dict[int, Tensor]:
    """Pretrain; tables as they are drawn anew, by the update after which they are, while all else stays as it is."""
    adamw: dict[str, list[dict[Tensor, Held]]] = {"before": [], "after": []}
    with noted(adamw):
        pretrained(workshop, recipe, out)
    tables = {}
    for step, (left, found) in enumerate(zip(adamw["after"], adamw["before"][1:], strict=False), start=1):
        differing = [each for each in found if not torch.equal(found[each].weight, left[each].weight)]
        for each in found.keys() - {*differing}:
            assert left[each].moments
            assert all(map(torch.equal, found[each].moments, left[each].moments))
        if differing:
            table_VD, bias_V = sorted(differing, key=lambda each: -each.ndim)
            assert (len(table_VD), *bias_V.shape) == (recipe.tokenizer.vocabulary, recipe.tokenizer.vocabulary)
            assert found[table_VD].moments == found[bias_V].moments == ()
            assert not found[bias_V].weight.any()
            tables[step] = found[table_VD].weight
    return tables


def test_table_and_bias_are_drawn_anew_with_their_moments_and_nothing_else(
    workshop: Workshop, forgetful: Recipe, tmp_path: Path
) -> None:
    recipe = changed(forgetful, "pretraining", optimizer="adamw")
    first, again, other = (
        forgotten(workshop, changed(recipe, "pretraining", seed=seed), tmp_path / str(place))
        for place, seed in enumerate((1, 1, 2))
    )
    assert first.keys() == {3, 6}
    for table_VD in first.values():
        assert table_VD.std().item() == pytest.approx(INITIAL_STD, rel=0.05)
        assert table_VD.mean().item() == pytest.approx(0, abs=0.002)
    assert all(torch.equal(first[step], again[step]) for step in first)
    assert not torch.equal(first[3], first[6])
    assert not torch.equal(first[3], other[3])


def test_static_vectors_are_what_a_table_begins_as_again_in_another_rotation(
    workshop: Workshop, forgetful: Recipe, tmp_path: Path
) -> None:
    recipe = changed(forgetful, "pretraining", embeddings="static-vectors")
    tables = forgotten(workshop, recipe, tmp_path / "out")
    pieces = Tokenizer.load(workshop.tokenizers["en"])
    blocks = load_blocks(workshop.blocks["en"], pieces, recipe.encoder.block_tokens)
    vectors = vectors_of(open_split(blocks, "train"), pieces)
    expected = cosines(vectors.vectors_VW[vectors.known, : recipe.encoder.width])
    assert tables.keys() == {3, 6}
    for table_VD in tables.values():
        assert torch.corrcoef(torch.stack([expected, cosines(table_VD[vectors.known])]))[0, 1] > 0.8
    third_VD, sixth_VD = (torch.nn.functional.normalize(table_VD[vectors.known]) for table_VD in tables.values())
    assert (third_VD * sixth_VD).sum(1).abs().mean() < 0.5


def cosines(rows_VD: Tensor) -> Tensor:
    """Of all pairs of rows."""
    unit_VD = torch.nn.functional.normalize(rows_VD)
    return (unit_VD @ unit_VD.T)[tuple(torch.triu_indices(len(rows_VD), len(rows_VD), offset=1))]


def test_stopped_before_at_and_after_the_update_after_which_it_forgets_it_ends_with_the_same_bits(
    workshop: Workshop, forgetful: Recipe, tmp_path: Path
) -> None:
    recipe = changed(forgetful, "pretraining", embeddings="static-vectors", micro_batch_blocks=8)
    whole = pretrained(workshop, recipe, tmp_path / "whole")
    require_equal_if_stopped(workshop, recipe, whole, tmp_path / "out")


@pytest.mark.parametrize(
    ("every", "steps", "after"),
    [(3, 10, [3, 6]), (3, 9, [3, 6]), (3, 8, [3]), (3, 6, [3]), (3, 5, []), (1, 3, [1, 2]), (None, 9, [])],
)
def test_as_many_updates_follow_the_last_forgetting(
    workshop: Workshop, every: int | None, steps: int, after: list[int]
) -> None:
    settings: Pretraining = changed(workshop.recipe, "pretraining", forget_every=every).pretraining
    assert [*settings.forgets_after(steps)] == after


def test_as_many_updates_follow_where_a_budget_ends_pretraining(
    workshop: Workshop, forgetful: Recipe, tmp_path: Path
) -> None:
    recipe = changed(forgetful, "pretraining", optimizer="adamw", windows=None)
    costs = [point.flops for point in read_curve(pretrained(workshop, recipe, tmp_path / "whole").folder)]
    budgeted = changed(recipe, "pretraining", flop_budget=costs[7] * 1.01)
    assert forgotten(workshop, budgeted, tmp_path / "out").keys() == {3}

"""Pretraining that begins within windows, by Muon: what attention sees, what it costs, and where it goes on."""

from pathlib import Path

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.config.training import Windows
from lingraft.model.flops import UpdateShape
from lingraft.reports.cost.bill import bills
from lingraft.signals import Interruption
from lingraft.stages.pretrain import pretrain
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
    out = tmp_path / "out"
    for step in (WITHIN - 1, WITHIN, WITHIN + 1):
        with pytest.raises(Interruption, match="asked to stop"):
            pretrained(workshop, recipe, out, stopping_after(step))
    again = pretrained(workshop, recipe, out)
    assert again.manifest.fingerprints == whole.manifest.fingerprints
    assert (history(out), facts(out)) == (history(whole.folder), facts(whole.folder))


def test_muon_makes_another_primary(workshop: Workshop, recipe: Recipe, whole: Artifact, tmp_path: Path) -> None:
    other = pretrained(workshop, changed(recipe, "pretraining", optimizer="adamw"), tmp_path / "out")
    assert whole.manifest.fingerprints["body"] != other.manifest.fingerprints["body"]


def test_a_recipe_without_windows_and_with_adamw_keeps_its_digest(workshop: Workshop, recipe: Recipe) -> None:
    assert not {"windows", "optimizer"} & workshop.recipe.pretraining.model_dump(mode="json").keys()
    for without in ({"windows": None}, {"optimizer": "adamw"}):
        assert recipe.digest() != changed(recipe, "pretraining", **without).digest()

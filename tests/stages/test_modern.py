"""The stages with ModernBERT's family: what trains, what stays bit for bit, and a training that was stopped."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, System
from lingraft.model.flops import UpdateShape
from lingraft.model.loading import load_primary
from lingraft.stages.adapt import adapt
from lingraft.stages.build_mini import build_mini
from lingraft.stages.finetune import body_parameters, finetune
from lingraft.stages.pretrain import pretrain
from lingraft.tasks.finetuned import load_task
from lingraft.training.schedule import MetricsCallback, ignore_metrics
from tests.fixtures import once
from tests.workshop import Workshop

STEPS = {"steps": 4, "batch_blocks": 8, "learning_rate": 3e-3}
WINDOW = {"local_tokens": 8, "global_every": 2}


def modern(recipe: Recipe, system: System = System.MINIJOINT) -> Recipe:
    """The recipe with a modern encoder, whose local attention is shorter than a block, and few updates."""
    raw = recipe.model_dump(mode="json") | {"search": None, "mini": STEPS | {"fresh_layers": 1}, "system": system}
    raw["encoder"] |= {"family": {"separators": 1, "pre_norm": WINDOW}}
    raw["pretraining"] |= STEPS | {"warmup_steps": 1, "log_every_steps": 1}
    raw["adaptation"] |= STEPS | ({"depth": 3} if system is System.BL_BASE else {})
    return Recipe.parse(raw)


def pretrained(
    workshop: Workshop, out: Path, watch: MetricsCallback = ignore_metrics, system: System = System.MINIJOINT
) -> Artifact:
    recipe = modern(workshop.recipe, system)
    return pretrain(recipe, workshop.blocks["en"], workshop.tokenizers["en"], out, watch)


@pytest.fixture(scope="module")
def primary(workshop: Workshop) -> Path:
    recipe = modern(workshop.recipe)
    return once.folder("modern", lambda folder: pretrained(workshop, folder / "primary"), recipe.to_json()) / "primary"


def body(folder: Path, kind: Kind = Kind.PRIMARY) -> dict[str, torch.Tensor]:
    return Artifact.load(folder, kind).tensors("body")


@pytest.mark.parametrize("depth", [1, 3])
def test_adaptation_leaves_the_body_bit_for_bit(workshop: Workshop, primary: Path, tmp_path: Path, depth: int) -> None:
    before = {path: path.read_bytes() for path in primary.rglob("*") if path.is_file()}
    recipe = modern(workshop.recipe)
    made = adapt(
        recipe, primary, workshop.blocks["de"], workshop.tokenizers["de"], depth, tmp_path / "de", ignore_metrics
    )
    assert {path: path.read_bytes() for path in primary.rglob("*") if path.is_file()} == before
    assert {name for part in made.folder.glob("*.safetensors") for name in made.tensors(part.stem)} == {
        "table_VD",
        "bias_V",
    }
    assert made.manifest.aligned_with == Artifact.load(primary, Kind.PRIMARY).fingerprint


@pytest.mark.parametrize("system", [System.BL_BASE, System.BL_SMALL, System.MINIPOST])
def test_every_system_learns_a_language(workshop: Workshop, tmp_path: Path, system: System) -> None:
    recipe = modern(workshop.recipe, system)
    primary, steps = (
        pretrained(workshop, tmp_path / "primary", system=system),
        recipe.steps_over(recipe.adaptation.depth),
    )
    mini = None
    if Stage.BUILD_MINI in steps:
        mini = build_mini(recipe, primary.folder, workshop.blocks["en"], tmp_path / "mini", ignore_metrics).folder
    layers = load_primary(primary.folder, recipe.primary_shape).encoder.shape.layers
    assert layers == steps[Stage.PRETRAIN].layers == (1 if system is System.BL_SMALL else 3)
    made = learned(workshop, recipe, primary.folder, tmp_path / "de", mini=mini)
    expected = UpdateShape.of(
        recipe.encoder, layers=steps[Stage.ADAPT].layers, vocabulary=120, batch_blocks=8, mask_rate=0.15
    )
    assert made.manifest.cost.flops == pytest.approx(4 * expected.adaptation_flops())


def learned(
    shop: Workshop, recipe: Recipe, primary: Path, out: Path, watch: MetricsCallback = ignore_metrics, **given: Any
) -> Artifact:
    """German embeddings over the recipe's own depth."""
    folders = shop.blocks["de"], shop.tokenizers["de"]
    return adapt(recipe, primary, *folders, recipe.adaptation.depth, out, watch, **given)


def test_finetuning_trains_the_body_and_the_norm_at_its_top_alone(
    workshop: Workshop, primary: Path, tmp_path: Path
) -> None:
    recipe, before = modern(workshop.recipe), body(primary)
    made = finetune(recipe, "topic", primary, workshop.texts["en"], 1, tmp_path / "task", ignore_metrics)
    after = body(made.folder, Kind.TASK)
    unchanged = {name for name, tensor in after.items() if name in before and torch.equal(tensor, before[name])}
    assert unchanged == {"final_norms.1.weight", "final_norms.2.weight"}
    net = load_task(made.folder).net
    trained = {id(parameter) for parameter in body_parameters(net)}  # gradients of all of these are awaited by DDP
    norms = [name for name, parameter in net.encoder.final_norms.named_parameters() if id(parameter) in trained]
    assert norms == ["3.weight"]

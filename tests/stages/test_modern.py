"""The stages with ModernBERT's family: what trains, what stays bit for bit, and a training that was stopped."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.initialisation import Initialisation
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, System
from lingraft.model.encoder import Encoder
from lingraft.model.flops import UpdateShape
from lingraft.model.loading import load_mini, load_primary
from lingraft.signals import Interruption
from lingraft.stages.adapt import adapt
from lingraft.stages.build_mini import build_mini
from lingraft.stages.finetune import body_parameters, finetune
from lingraft.stages.initialise import initialise
from lingraft.stages.pretrain import pretrain
from lingraft.stages.vectors import build_vectors
from lingraft.tasks.finetuned import load_task
from lingraft.training.schedule import MetricsCallback, ignore_metrics
from tests.fixtures import once
from tests.workshop import Workshop, changed, same_tensors, stopping_after

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


def test_pretraining_trains_everything_at_every_head(workshop: Workshop, primary: Path) -> None:
    recipe = modern(workshop.recipe)
    with torch.random.fork_rng():
        torch.manual_seed(recipe.pretraining.seed)
        fresh = Encoder(recipe.encoder, recipe.tokenizer.vocabulary).state_dict()
    trained = load_primary(primary, recipe.primary_shape).encoder.state_dict()
    assert [name for name, tensor in trained.items() if torch.equal(tensor, fresh[name])] == []
    assert {name.split(".")[1] for name in trained if name.startswith("final_norms.")} == {"1", "2", "3"}
    assert "positions_TD" not in trained


def test_a_stopped_training_goes_on_to_the_very_same_primary(workshop: Workshop, primary: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(Interruption):
        pretrained(workshop, out, stopping_after(2))
    assert not out.exists()
    assert pretrained(workshop, out).fingerprint == Artifact.load(primary, Kind.PRIMARY).fingerprint


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


def test_fresh_layers_train_alone(workshop: Workshop, tmp_path: Path) -> None:
    recipe = modern(workshop.recipe, System.MINIPOST)
    primary = pretrained(workshop, tmp_path / "primary", system=System.MINIPOST)
    before = body(primary.folder)
    made = build_mini(recipe, primary.folder, workshop.blocks["en"], tmp_path / "mini", ignore_metrics)
    assert same_tensors(body(primary.folder), before)
    mini = load_mini(made.folder).build_model(load_primary(primary.folder))
    assert (mini.shape.layers, mini.depths, [*mini.final_norms]) == (2, (2,), ["2"])


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


def test_an_adaptation_that_was_stopped_goes_on_to_the_very_same_rows(
    workshop: Workshop, primary: Path, tmp_path: Path
) -> None:
    recipe = modern(workshop.recipe)
    raw = recipe.model_dump(mode="json")
    raw["adaptation"] |= {"steps": 8, "depth": 3, "log_every_steps": 1}
    recipe = Recipe.parse(raw)
    whole = learned(workshop, recipe, primary, tmp_path / "whole")
    with pytest.raises(Interruption):
        learned(workshop, recipe, primary, tmp_path / "out", stopping_after(5))
    assert learned(workshop, recipe, primary, tmp_path / "out").fingerprint == whole.fingerprint


def test_a_language_starts_from_aligned_rows(workshop: Workshop, primary: Path, tmp_path: Path) -> None:
    recipe = changed(modern(workshop.recipe), "adaptation", initialisation=Initialisation.ALIGNED)
    vectors = build_vectors(recipe, workshop.blocks["en"], workshop.tokenizers["en"], tmp_path / "vectors").folder
    start = initialise(recipe, primary, workshop.tokenizers["de"], tmp_path / "start", workshop.blocks["de"], vectors)
    made = learned(workshop, recipe, primary, tmp_path / "de", initial=start.folder)
    assert made.manifest.data_hashes["initial"] == start.fingerprint
    assert (start.manifest.details["initialisation"], made.manifest.cost.steps) == ("aligned", 4)


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

"""An imported primary goes through the stages like one of our own; MINIPOST starts from it (section 2, step 1b)."""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from lingraft.config.recipe import Recipe
from lingraft.data import blocks, text
from lingraft.data.tokenizer.training import train_tokenizer
from lingraft.errors import ExportError, RecipeError
from lingraft.export.bundling import load_sources
from lingraft.huggingface.export import export_hf
from lingraft.huggingface.importing import import_hf
from lingraft.model.loading import load_embeddings, load_mini, load_primary
from lingraft.stages import build_mini, evaluate, finetune, results
from lingraft.stages.adapt import adapt
from lingraft.training.schedule import ignore_metrics
from tests.huggingface.checkpoints import make_checkpoint
from tests.made_up import write


class Lane(NamedTuple):
    """A recipe that works on an imported primary, and the folder of all artifacts."""

    recipe: Recipe
    folder: Path


@pytest.fixture(scope="module", params=["bert", "bert without a head", "modernbert without a head"])
def lane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lane:
    """Primary imported, source text in blocks of its own pieces, German text in blocks of pieces trained for it."""
    folder = tmp_path_factory.mktemp("lane")
    model_type, _, headless = request.param.partition(" ")
    checkpoint = make_checkpoint(folder / "checkpoint", model_type)
    if headless:
        checkpoint.model.base_model.save_pretrained(checkpoint.folder)
    import_hf(str(checkpoint.folder), folder / "primary", "en")
    shape = load_primary(folder / "primary").encoder.shape
    tiny = Recipe.load(Path(__file__).parents[1] / "tiny.toml").model_dump(mode="json")
    tiny |= {"system": "MINIPOST", "encoder": shape.model_dump(mode="json"), "search": None, "targets": ["de"]}
    tiny["mini"] = {"fresh_layers": 1, "steps": 5, "batch_blocks": 4, "learning_rate": 1e-3}
    tiny["adaptation"] |= {"depth": 1, "steps": 5}
    recipe = Recipe.parse(tiny).with_folder(write(folder / "source", ("en", "de"), count=100))
    for language in recipe.languages:
        text.prepare(recipe, language, folder / f"text-{language}")
    train_tokenizer(recipe, folder / "text-de", folder / "tokenizer-de")
    for language, pieces in (("en", folder / "primary"), ("de", folder / "tokenizer-de")):
        blocks.build(recipe, folder / f"text-{language}", pieces, folder / f"blocks-{language}")
    return Lane(recipe, folder)


def test_the_source_is_judged(lane: Lane) -> None:
    recipe, folder = lane
    finetune.finetune(recipe, "topic", folder / "primary", folder / "text-en", 1, folder / "task", ignore_metrics)
    given = folder / "text-en", folder / "blocks-en", folder / "source-result"
    evaluate.evaluate_source(recipe, folder / "primary", [folder / "task"], *given)
    found = results.load_source(folder / "source-result")
    primary = load_primary(folder / "primary")
    assert found.masked_by_depth.keys() == {*primary.encoder.depths}
    assert (found.pretraining.steps, found.pretraining_history, found.precision) == (0, [], "fp32")
    assert found.tasks[0].score.by_seed.keys() == {1}


def test_a_language_is_adapted_over_fresh_layers_and_judged(lane: Lane) -> None:
    recipe, folder = lane
    build_mini.build_mini(recipe, folder / "primary", folder / "blocks-en", folder / "mini", ignore_metrics)
    given = folder / "primary", folder / "blocks-de", folder / "tokenizer-de"
    adapt(recipe, *given, recipe.adaptation.depth, folder / "de", ignore_metrics, mini=folder / "mini")
    primary, german = load_primary(folder / "primary"), load_embeddings(folder / "de")
    assert german.aligned_with == primary.fingerprint
    assert german.manifest.details["overlap"] > len(primary.tokenizer.special)
    judged = folder / "text-de", folder / "blocks-de", folder / "result-de"
    evaluate.evaluate_language(recipe, folder / "primary", folder / "de", [], *judged, mini=folder / "mini")
    found = results.load_language(folder / "result-de")
    assert found.primary == primary.fingerprint
    if not primary.encoder.depths:  # nothing but the mini-model finds masked tokens
        assert (found.masked.primary, found.masked.primary_initial) == (found.masked.mini, found.masked.mini_initial)


def test_step_1b_trains_a_head_where_the_primary_has_none(lane: Lane) -> None:
    recipe, folder = lane
    building = recipe.require_mini()
    one = recipe.model_copy(update={"mini": building.model_copy(update={"steps": 1})})
    for name, steps in (("one", one), ("five", recipe)):
        build_mini.build_mini(steps, folder / "primary", folder / "blocks-en", folder / name, ignore_metrics)
    after_one, after_five = (load_mini(folder / name).head for name in ("one", "five"))
    if load_primary(folder / "primary").encoder.depths:
        assert after_one is after_five is None
    else:
        assert after_one
        assert after_five
        changed = zip(after_one.parameters(), after_five.parameters(), strict=True)
        assert all(not torch.equal(first, last) for first, last in changed)


def test_without_a_head_other_systems_are_refused(lane: Lane) -> None:
    recipe, folder = lane
    if recipe.encoder.mlm_heads:
        return
    raw = recipe.model_dump(mode="json")
    raw["adaptation"]["depth"] = recipe.encoder.layers
    with pytest.raises(RecipeError, match=r"mlm_heads is empty, so that system BL_BASE has no head.*'MINIPOST'"):
        Recipe.parse(raw | {"system": "BL_BASE", "mini": None})
    with pytest.raises(ExportError, match=r"has no MLM head, and so cannot fill masks\. Export a task"):
        load_sources(folder / "primary", None, [])
    with pytest.raises(ExportError, match="has no MLM head, so that it is no masked language model"):
        export_hf(folder / "primary", folder / "exported")

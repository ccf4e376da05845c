"""An imported primary goes through the stages like one of our own; MINIPOST starts from it (section 2, step 1b)."""

import json
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from lingraft.cli import app
from lingraft.config.recipe import Recipe
from lingraft.data import blocks, text
from lingraft.data.tokenizer.tokenizer import train_tokenizer
from lingraft.huggingface.importing import import_hf
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.stages import build_mini, evaluate, finetune, results
from lingraft.stages.adapt import adapt
from lingraft.training.schedule import ignore_metrics
from tests.huggingface.checkpoints import Made
from tests.made_up import write


class Lane(NamedTuple):
    """A recipe that works on an imported primary, and the folder of all artifacts."""

    recipe: Recipe
    folder: Path


@pytest.fixture(scope="module", params=["bert"])
def lane(
    request: pytest.FixtureRequest, checkpoints: dict[str, Made], tmp_path_factory: pytest.TempPathFactory
) -> Lane:
    """Primary imported, source text in blocks of its own pieces, German text in blocks of pieces trained for it."""
    folder = tmp_path_factory.mktemp(request.param)
    import_hf(str(checkpoints[request.param].folder), folder / "primary", "en")
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
    assert found.masked_by_depth.keys() == {3}
    assert (found.pretraining.steps, found.pretraining_history, found.precision) == (0, [], "fp32")
    assert found.tasks[0].score.by_seed.keys() == {1}


def test_a_language_is_adapted_over_fresh_layers_and_judged(lane: Lane) -> None:
    recipe, folder = lane
    build_mini.build_mini(recipe, folder / "primary", folder / "blocks-en", folder / "mini", ignore_metrics)
    given = folder / "primary", folder / "blocks-de", folder / "tokenizer-de"
    adapt(recipe, *given, recipe.adaptation.depth, folder / "de", ignore_metrics, minis=[folder / "mini"])
    primary, german = load_primary(folder / "primary"), load_embeddings(folder / "de")
    assert german.aligned_with == primary.fingerprint
    assert german.manifest.details["overlap"] > len(primary.tokenizer.special)
    judged = folder / "text-de", folder / "blocks-de", folder / "result-de"
    evaluate.evaluate_language(recipe, folder / "primary", folder / "de", [], *judged, mini=folder / "mini")
    assert results.load_language(folder / "result-de").primary == primary.fingerprint


@pytest.mark.parametrize("model_type", ["roberta", "bert"])
def test_the_section_that_is_printed_once_is_the_primarys_shape(
    model_type: str, checkpoints: dict[str, Made], tmp_path: Path
) -> None:
    given = ["--from", str(checkpoints[model_type].folder), "--language", "en", "--out", str(tmp_path / "primary")]
    printed = CliRunner().invoke(app, ["import", *given])
    shape = load_primary(tmp_path / "primary").encoder.shape
    said = tomllib.loads(printed.stdout)["encoder"]
    assert type(shape).model_validate_json(json.dumps(said), strict=True) == shape
    assert "[encoder]" not in printed.stderr

"""A model card states what manifests and evaluations say, and says where they say nothing."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST, Kind
from lingraft.errors import AlignmentError
from lingraft.huggingface import card as model_card
from lingraft.huggingface.card import CardSubject
from lingraft.huggingface.model import hf_class_of
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.stages import results
from lingraft.stages.evaluate import evaluate_language, evaluate_source
from lingraft.stages.results import load_language, load_source
from lingraft.tasks.finetuned import load_task
from tests.workshop import Workshop, copied


def model_of(shop: Workshop, language: str, seed: int | None) -> CardSubject:
    source = load_primary(shop.primary)
    brought = load_embeddings(shop.embeddings[language]) if language != "en" else source
    task = load_task(shop.tasks[seed]) if seed else None
    return CardSubject(source, brought, task, hf_class_of(task.net if task else source.encoder), "xlm-roberta")


def head_of(card: str) -> dict[str, Any]:
    _, head, _ = card.split("---\n", 2)
    return dict(yaml.safe_load(head))


def section(card: str, title: str) -> str:
    return card.split(f"\n## {title}\n")[1].split("\n## ")[0]


def with_manifest(folder: Path, to: Path, **changes: Any) -> Path:
    """A copy with another manifest; its files stay as they are."""
    copied(folder, to)
    manifest = json.loads((to / MANIFEST).read_bytes())
    for key, value in changes.items():
        manifest[key] = manifest[key] | value
    (to / MANIFEST).write_text(json.dumps(manifest))
    return to


def adapted(shop: Workshop, to: Path, **details: Any) -> CardSubject:
    """The model of German, with embeddings whose manifest speaks of another system."""
    known = Artifact.load(shop.embeddings["de"], Kind.EMBEDDINGS).manifest.details
    folder = with_manifest(shop.embeddings["de"], to, details=known | details)
    model = model_of(shop, "de", None)
    return dataclasses.replace(model, vocabulary_source=load_embeddings(folder))


@pytest.fixture(scope="module")
def german(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The evaluation of German, both seeds."""
    out = tmp_path_factory.mktemp("evaluation") / "de"
    folders = workshop.primary, workshop.embeddings["de"], [*workshop.tasks.values()]
    evaluate_language(workshop.recipe, *folders, workshop.texts["de"], workshop.blocks["de"], out)
    return out


@pytest.fixture(scope="module")
def english(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evaluation") / "en"
    tasks = [*workshop.tasks.values()]
    evaluate_source(workshop.recipe, workshop.primary, tasks, workshop.texts["en"], workshop.blocks["en"], out)
    return out


def test_the_header_is_what_the_hub_reads(workshop: Workshop) -> None:
    expected = {"language": "de", "license": "unknown", "library_name": "transformers"}
    tags = {"tags": ["lingraft", "mini-model-adaptation"]}
    card = model_card.model_card(model_of(workshop, "de", seed=1))
    assert head_of(card) == expected | tags | {"pipeline_tag": "text-classification"}
    assert head_of(model_card.model_card(model_of(workshop, "de", None)))["pipeline_tag"] == "fill-mask"


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ({}, "masked tokens (arXiv 2212.10503) over the bottom 1 of 3 layers, system MINIJOINT"),
        ({"system": "BL_BASE", "depth": 3}, "over the bottom 3 of 3 layers, system BL_BASE"),
        (
            {"system": "MINIPOST", "depth": 2, "fresh_layers": 2},
            "the bottom 2 of 3 layers and 2 fresh layers, system MINIPOST",
        ),
        ({"pairs": {"layers": "all"}}, "sentence pairs (arXiv 2004.09813) over the bottom 3 of 3 layers"),
        ({"pairs": {"layers": "bottom"}}, "sentence pairs (arXiv 2004.09813) over the bottom 1 of 3 layers"),
    ],
)
def test_system_and_depth_are_those_of_the_embeddings(
    details: dict[str, Any], said: str, workshop: Workshop, tmp_path: Path
) -> None:
    card = model_card.model_card(adapted(workshop, tmp_path / "de", **details))
    assert said in card
    assert "with the body frozen" in card
    assert "with the body frozen" not in model_card.model_card(model_of(workshop, "en", None))


def test_cost_is_that_of_every_training(workshop: Workshop) -> None:
    cost = section(model_card.model_card(model_of(workshop, "de", seed=2)), "Cost")
    folders = {
        "primary": (workshop.primary, Kind.PRIMARY),
        "embeddings": (workshop.embeddings["de"], Kind.EMBEDDINGS),
        "task topic": (workshop.tasks[2], Kind.TASK),
    }
    for name, (folder, kind) in folders.items():
        spent = Artifact.load(folder, kind).manifest.cost
        assert spent.steps > 0
        assert f"| {name} | {spent.steps:,} | {spent.tokens:,} | {spent.flops:.3g} | {spent.elapsed_s:,.0f} |" in cost
    assert "| embeddings |" not in section(model_card.model_card(model_of(workshop, "en", None)), "Cost")


def test_scores_are_those_of_this_seed_and_their_mean(workshop: Workshop, german: Path, english: Path) -> None:
    for language, folder in (("de", german), ("en", english)):
        result = load_language(folder) if language == "de" else load_source(folder)
        (scores,) = result.tasks
        for seed in workshop.tasks:
            card = model_card.model_card(model_of(workshop, language, seed), folder)
            table = section(card, "Scores")
            assert f"| accuracy, this model (seed {seed}) | {scores.score.by_seed[seed]:.1%} |" in table
            assert f"| accuracy, mean of 2 seeds | {scores.score.mean:.1%} ± {scores.score.deviation:.1%} |" in table
            assert f"| accuracy, best trivial answer | {scores.baseline:.1%} |" in table
            assert f"| macro F1, mean of seeds | {scores.others['macro_F1'].mean:.1%} |" in table
            assert f"{scores.examples} test examples in `{language}`" in table


def test_metrics_are_named_in_words(workshop: Workshop, german: Path, tmp_path: Path) -> None:
    result = load_language(german)
    searched = result.model_copy(update={"tasks": (result.tasks[0].model_copy(update={"metric": "accuracy_at_1"}),)})
    results.save(searched, tmp_path / "searched", {"language": "de", "aligned_with": result.primary})
    table = section(model_card.model_card(model_of(workshop, "de", seed=1), tmp_path / "searched"), "Scores")
    assert "| accuracy at 1, this model (seed 1) |" in table
    assert "accuracy_at_1" not in table


def test_scores_of_masked_tokens_are_those_of_the_exported_head(
    workshop: Workshop, german: Path, english: Path
) -> None:
    table = section(model_card.model_card(model_of(workshop, "de", None), german), "Scores")
    assert f"| {load_language(german).masked.primary:.1%} |" in table
    table = section(model_card.model_card(model_of(workshop, "en", None), english), "Scores")
    assert f"| {load_source(english).masked_by_depth[3]:.1%} |" in table


def test_an_evaluation_of_something_else_is_refused(workshop: Workshop, german: Path, english: Path) -> None:
    for language, folder in (("tr", german), ("tr", english), ("en", german), ("de", english)):
        with pytest.raises(AlignmentError, match="Give their evaluation"):
            model_card.model_card(model_of(workshop, language, None), folder)


def test_what_nobody_says_is_not_stated(workshop: Workshop) -> None:
    card = model_card.model_card(model_of(workshop, "de", seed=1))
    assert "No evaluation was given" in section(card, "Scores")
    assert head_of(card)["license"] == "unknown"


def imported(shop: Workshop, to: Path, **origin: Any) -> CardSubject:
    known = {"model_type": "roberta", "name": "someone/model", "revision": "main", "sha": "c0ffee", "licence": "mit"}
    known |= {"package": None}
    with artifact.create(to, Kind.PRIMARY) as draft:
        primary = load_primary(shop.primary)
        draft.tensors("body", primary.encoder.body_tensors())
        draft.tensors("vocabulary", primary.encoder.vocabulary.state_dict())
        (draft.folder / primary.tokenizer.model.name).write_bytes(primary.tokenizer.model.read_bytes())
        shape = primary.encoder.shape.model_dump(mode="json")
        draft.facts = {"language": "en", "details": {"shape": shape}, "record": {"origin": known | origin}}
    source = load_primary(to)
    return CardSubject(source, source, None, hf_class_of(source.encoder), "roberta")


def test_an_imported_primary_is_named_with_its_licence(workshop: Workshop, tmp_path: Path) -> None:
    card = model_card.model_card(imported(workshop, tmp_path / "hub"))
    assert (head_of(card)["base_model"], head_of(card)["license"]) == ("someone/model", "mit")
    assert "`someone/model`, revision `main`, commit `c0ffee`" in section(card, "Provenance")
    assert "licence: mit." in section(card, "Provenance")
    assert "the imported primary cost is not stated" in section(card, "Cost")
    assert "| primary |" not in section(card, "Cost")


def test_a_folder_is_no_base_model_of_the_hub(workshop: Workshop, tmp_path: Path) -> None:
    card = model_card.model_card(imported(workshop, tmp_path / "folder", revision=None, licence=None, name="mine"))
    assert "base_model" not in head_of(card)
    assert head_of(card)["license"] == "unknown"
    assert "imported from `mine`, a local folder" in section(card, "Provenance")


def test_zero_shot_transfer_is_said_of_targets_only(workshop: Workshop) -> None:
    for language, said in (("de", True), ("en", False)):
        limits = section(model_card.model_card(model_of(workshop, language, seed=1)), "What it is not for")
        assert ("(zero-shot transfer)" in limits) is said
        assert f"other languages than `{language}`" in limits


def test_fingerprints_lead_back_to_the_artifacts(workshop: Workshop) -> None:
    card = section(model_card.model_card(model_of(workshop, "de", seed=1)), "Provenance")
    for folder, kind in (
        (workshop.primary, Kind.PRIMARY),
        (workshop.embeddings["de"], Kind.EMBEDDINGS),
        (workshop.tasks[1], Kind.TASK),
    ):
        assert Artifact.load(folder, kind).fingerprint in card

"""A model card states what manifests and evaluations say, and says where they say nothing."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST, Cost, Kind
from lingraft.errors import AlignmentError, ArtifactError
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


def test_system_and_depth_are_those_of_the_embeddings(workshop: Workshop, tmp_path: Path) -> None:
    card = model_card.model_card(model_of(workshop, "de", seed=1))
    assert "mini-model adaptation (arXiv 2212.10503) over the bottom 1 of 3 layers, then put into" in card
    assert "system MINIJOINT, with the body frozen" in card
    for fresh, said in ((1, "2 of 3 layers and 1 fresh layer,"), (2, "2 of 3 layers and 2 fresh layers,")):
        model = adapted(workshop, tmp_path / str(fresh), system="MINIPOST", depth=2, fresh_layers=fresh)
        assert said in model_card.model_card(model)
        assert "system MINIPOST" in model_card.model_card(model)
    standard = model_card.model_card(adapted(workshop, tmp_path / "base", system="BL_BASE", depth=3, fresh_layers=0))
    assert "standard adaptation over all 3 layers (arXiv 1910.11856), system BL_BASE, with the body" in standard
    for card in (standard, model_card.model_card(model_of(workshop, "en", None))):
        assert "mini-model adaptation (arXiv" not in card


BY_PAIRS = "by sentence pairs (arXiv 2004.09813), whose vectors are taken after"


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ({"layers": "all"}, f"{BY_PAIRS} all 3 layers, system MINIJOINT"),
        ({"layers": "bottom"}, f"{BY_PAIRS} the bottom 1 of 3 layers, system MINIJOINT"),
    ],
)
def test_learning_by_pairs_is_said(pairs: dict[str, Any], said: str, workshop: Workshop, tmp_path: Path) -> None:
    card = model_card.model_card(adapted(workshop, tmp_path / "de", pairs=pairs))
    assert f"The token embeddings were learned {said}, with the body frozen." in card
    assert "mini-model adaptation (arXiv" not in card
    by_pairs = "An update of sentence pairs, for which it has none, counts as three passes through the layers."
    assert by_pairs in section(card, "Cost")
    assert by_pairs not in model_card.model_card(model_of(workshop, "de", None))


def test_cost_of_step_1b_is_that_of_the_evaluation(workshop: Workshop, german: Path, tmp_path: Path) -> None:
    model = adapted(workshop, tmp_path / "post", system="MINIPOST", depth=2, fresh_layers=1)
    judged = load_language(german).model_copy(update={"embeddings": model.vocabulary_source.fingerprint})
    spent = Cost(steps=1234, tokens=56789, flops=3.21e15, elapsed_s=77)
    for name, building in (("with", spent), ("without", None)):
        results.save(judged.model_copy(update={"building": building}), tmp_path / name, {})
    cost = section(model_card.model_card(model, tmp_path / "with"), "Cost")
    assert "| fresh layers (step 1b, once for all languages) | 1,234 | 56,789 | 3.21e+15 | 77 |" in cost
    assert "not stated" not in cost
    for evaluation in (tmp_path / "without", None):
        cost = section(model_card.model_card(model, evaluation), "Cost")
        assert "fresh layers (step 1b) cost is not stated" in cost
        assert "| fresh layers" not in cost


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


def test_data_is_led_back_to_the_documents_by_fingerprints(workshop: Workshop) -> None:
    folders = [workshop.texts["en"], workshop.texts["de"], workshop.blocks["en"], workshop.blocks["de"]]
    data = section(model_card.model_card(model_of(workshop, "de", seed=1), data=folders), "Data")
    for language in ("en", "de"):
        text = Artifact.load(workshop.texts[language], Kind.TEXT)
        documents, characters = (text.manifest.details[what]["train"] for what in ("documents", "characters"))
        assert f"| {language} | folder | {documents} | {characters} | `{text.fingerprint}` |" in data
        assert Artifact.load(workshop.blocks[language], Kind.BLOCKS).fingerprint in data
    assert str(workshop.texts["de"].parent) not in data
    silent = section(model_card.model_card(model_of(workshop, "de", seed=1)), "Data")
    assert "Documents of the text: not stated." in silent


def test_text_that_nothing_was_trained_on_is_refused(workshop: Workshop) -> None:
    model = model_of(workshop, "de", None)
    for folders in ([workshop.texts["tr"]], [workshop.texts["tr"], workshop.blocks["tr"]]):
        with pytest.raises(ArtifactError, match="nothing that is exported was trained on"):
            model_card.model_card(model, data=folders)
    german = Artifact.load(workshop.texts["de"], Kind.TEXT).fingerprint
    assert german in section(model_card.model_card(model, data=[workshop.texts["de"]]), "Data")  # without its blocks
    with pytest.raises(ArtifactError, match="of kind primary, but one of kind text"):
        model_card.model_card(model, data=[workshop.primary])


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
            assert "no score of it is stated" not in card


def test_metrics_are_named_in_words(workshop: Workshop, german: Path, tmp_path: Path) -> None:
    result = load_language(german)
    searched = result.model_copy(update={"tasks": (result.tasks[0].model_copy(update={"metric": "accuracy_at_1"}),)})
    results.save(searched, tmp_path / "searched", {"language": "de", "aligned_with": result.primary})
    table = section(model_card.model_card(model_of(workshop, "de", seed=1), tmp_path / "searched"), "Scores")
    assert "| accuracy at 1, this model (seed 1) |" in table
    assert "accuracy_at_1" not in table


def test_a_class_that_is_never_found_is_among_the_limits(workshop: Workshop, german: Path, tmp_path: Path) -> None:
    result = load_language(german)
    (scores,) = result.tasks
    always_first = [[sum(row), *(0 for _ in row[1:])] for row in scores.confusion]
    blind = result.model_copy(update={"tasks": (scores.model_copy(update={"confusion": always_first}),)})
    results.save(blind, tmp_path / "blind", {"language": "de", "aligned_with": result.primary})
    limits = section(model_card.model_card(model_of(workshop, "de", seed=1), tmp_path / "blind"), "What it is not for")
    _, *others = scores.labels
    never = ", ".join(f"`{label}`" for label in others)
    assert f"Finding {never}: none of the test examples with these labels is recognised." in limits
    assert "Finding" not in section(model_card.model_card(model_of(workshop, "de", seed=1)), "What it is not for")


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
    assert section(card, "Licences of the inputs").splitlines()[1:] == [
        f"- training text of the {name}: not stated" for name in ("primary", "embeddings", "task topic")
    ]
    assert "no score of it is stated above" in section(card, "What it is not for")


def licensed(shop: Workshop, language: str, licence: str | None, to: Path) -> Path:
    """The language's text with a licence in its recipe."""
    recipe = Artifact.load(shop.texts[language], Kind.TEXT).manifest.recipe
    return with_manifest(shop.texts[language], to, recipe={"text": recipe["text"] | {"licence": licence}})


@pytest.mark.parametrize(
    ("english", "german", "expected"),
    [
        ("mpl-2.0", "mpl-2.0", "mpl-2.0"),
        ("mpl-2.0", "cc0-1.0", "other"),
        ("mpl-2.0", None, "unknown"),
    ],
)
def test_licences_are_those_of_the_texts(
    english: str, german: str | None, expected: str, workshop: Workshop, tmp_path: Path
) -> None:
    texts = [licensed(workshop, "en", english, tmp_path / "en"), licensed(workshop, "de", german, tmp_path / "de")]
    card = model_card.model_card(
        model_of(workshop, "de", seed=1), data=[*texts, *(workshop.blocks[x] for x in ("en", "de"))]
    )
    assert head_of(card)["license"] == expected
    stated = section(card, "Licences of the inputs").strip().splitlines()
    wanted = {"en": english, "de": german or "not stated"}
    assert stated == [f"- text in `{language}` (folder): {licence}" for language, licence in wanted.items()]
    # Where only some of the texts are given, the others' licences are nobody's to state.
    one = model_card.model_card(model_of(workshop, "de", seed=1), data=[texts[0]])
    assert head_of(one)["license"] == "unknown"


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
    assert "weights and tokenizer of `someone/model`: mit" in section(card, "Licences of the inputs")
    assert "what its training cost is not stated" in section(card, "Cost")
    assert "| primary |" not in section(card, "Cost") + section(card, "Data")


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
        assert "More than 32 tokens" in limits


def test_fingerprints_lead_back_to_the_artifacts(workshop: Workshop) -> None:
    card = section(model_card.model_card(model_of(workshop, "de", seed=1)), "Provenance")
    for folder, kind in (
        (workshop.primary, Kind.PRIMARY),
        (workshop.embeddings["de"], Kind.EMBEDDINGS),
        (workshop.tasks[1], Kind.TASK),
    ):
        assert Artifact.load(folder, kind).fingerprint in card

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST, Kind
from lingraft.config.systems import Stage
from lingraft.data.blocks import open_split
from lingraft.data.text import load_split
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import AlignmentError, ArtifactError, TextError, TokenizerError
from lingraft.model.encoder import Vocabulary
from lingraft.model.flops import step_flops
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.stages.embeddings import initial_rows
from lingraft.stages.evaluate import evaluate_language, evaluate_source
from lingraft.stages.results import (
    MASKED,
    MASKED_INITIAL,
    LanguageResult,
    SeedScores,
    SourceResult,
    TaskScores,
    load_items,
    load_language,
    load_source,
    save,
    task_item,
)
from lingraft.tasks.finetuned import load_task
from lingraft.tasks.labelled_texts import documents_as_examples
from lingraft.training import masked_lm
from tests.workshop import Workshop, copied


def judged(shop: Workshop, out: Path, tasks: bool = True, language: str = "de") -> LanguageResult:
    """The evaluation of a language's embeddings."""
    folders = list(shop.tasks.values()) if tasks else []
    embeddings, text, blocks = shop.embeddings[language], shop.texts[language], shop.blocks[language]
    evaluate_language(shop.recipe, shop.primary, embeddings, folders, text, blocks, out)
    return load_language(out)


def source_judged(shop: Workshop, out: Path, language: str = "en") -> SourceResult:
    folders = list(shop.tasks.values())
    evaluate_source(shop.recipe, shop.primary, folders, shop.texts[language], shop.blocks["en"], out)
    return load_source(out)


def topic(result: LanguageResult | SourceResult) -> TaskScores:
    """Scores of the workshop's only task."""
    (scores,) = result.tasks
    assert (scores.name, scores.metric) == ("topic", "accuracy")
    return scores


def judged_by_hand(workshop: Workshop, vocabulary: Vocabulary) -> dict[int, float]:
    """Scores by seed of the workshop's only task with a German vocabulary."""
    pieces = Tokenizer.load(workshop.tokenizers["de"])
    documents = documents_as_examples(load_split(Artifact.load(workshop.texts["de"], Kind.TEXT), "test"))
    found = {}
    for seed, folder in workshop.tasks.items():
        task = load_task(folder)
        swap(task.net.encoder, vocabulary)
        data = task.kind.prepare(documents, task.labels, pieces, task.shape)
        found[seed] = task.kind.judge(task.net, data, "de").score
    return found


@pytest.fixture(scope="module")
def german_folder(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("german") / "out"
    judged(workshop, out)
    return out


@pytest.fixture(scope="module")
def german(german_folder: Path) -> LanguageResult:
    return load_language(german_folder)


@pytest.fixture(scope="module")
def english_folder(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("english") / "out"
    source_judged(workshop, out)
    return out


@pytest.fixture(scope="module")
def english(english_folder: Path) -> SourceResult:
    return load_source(english_folder)


@pytest.fixture(scope="module")
def stranger(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workshop.other_primary(tmp_path_factory.mktemp("stranger") / "primary")


def held_out(workshop: Workshop, language: str) -> torch.Tensor:
    return open_split(Artifact.load(workshop.blocks[language], Kind.BLOCKS), "test").all()


def test_a_confusion_counts_every_test_document_once_a_seed(
    workshop: Workshop, german: LanguageResult, english: SourceResult
) -> None:
    for language, task in (("de", topic(german)), ("en", topic(english))):
        documents = load_split(Artifact.load(workshop.texts[language], Kind.TEXT), "test")
        seeds = len(workshop.tasks)
        assert task.examples == len(documents)
        assert sum(map(sum, task.confusion)) == len(documents) * seeds
        right = sum(task.confusion[index][index] for index in range(len(task.labels)))
        assert task.score.mean == pytest.approx(right / (len(documents) * seeds))
        largest = max(sum(document.label == label for document in documents) for label in task.labels)
        assert task.baseline == pytest.approx(largest / len(documents))
        assert sorted(task.score.by_seed) == sorted(workshop.tasks)


def test_as_initialised_means_a_freshly_initialised_table(workshop: Workshop, german: LanguageResult) -> None:
    primary, pieces = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"])
    rows = initial_rows(workshop.recipe, primary, pieces)
    fresh = make_vocabulary(rows.table_VD, rows.bias_V)
    swap(primary.encoder, fresh)
    blocks_NT = held_out(workshop, "de")
    masked = masked_lm.accuracy(primary.encoder, blocks_NT, (german.depth, german.layers))
    assert (german.masked.mini_initial, german.masked.primary_initial) == (masked[1], masked[3])
    assert german.overlap == rows.copied
    assert german.masked.mini != german.masked.mini_initial
    initial = topic(german).initial
    assert initial
    assert initial.by_seed == judged_by_hand(workshop, fresh)


def test_a_task_is_judged_with_the_embeddings_as_learned(workshop: Workshop, german: LanguageResult) -> None:
    learned = load_embeddings(workshop.embeddings["de"])
    assert topic(german).score.by_seed == judged_by_hand(workshop, learned.vocabulary)
    assert topic(german).initial != topic(german).score


def test_masked_scores_of_mini_model_and_primary_are_not_confused(workshop: Workshop, tmp_path: Path) -> None:
    turkish = judged(workshop, tmp_path / "out", tasks=False, language="tr").masked
    primary = load_primary(workshop.primary)
    primary.swap_in(load_embeddings(workshop.embeddings["tr"]))
    found = masked_lm.accuracy(primary.encoder, held_out(workshop, "tr"), (1, 3))
    assert found[1] != found[3]
    assert (turkish.mini, turkish.primary) == (found[1], found[3])


def test_the_source_is_judged_at_every_head(workshop: Workshop, english: SourceResult) -> None:
    blocks_NT = held_out(workshop, "en")
    encoder = load_primary(workshop.primary).encoder
    assert english.masked_by_depth == masked_lm.accuracy(encoder, blocks_NT, (1, 2, 3))


def test_the_cost_beside_is_that_of_as_many_updates_over_all_layers(
    workshop: Workshop, german: LanguageResult, tmp_path: Path
) -> None:
    recipe = workshop.recipe
    whole = recipe.steps_over(recipe.encoder.layers)[Stage.ADAPT]
    update = step_flops(recipe, whole, recipe.adaptation, german.vocabulary)
    assert german.whole_flops == recipe.adaptation.steps * update > german.cost.flops
    workshop.adapt("de", 3, tmp_path / "standard")
    shop = dataclasses.replace(workshop, embeddings={"de": tmp_path / "standard"})
    standard = judged(shop, tmp_path / "out", tasks=False)
    assert standard.standard
    assert standard.whole_flops == standard.cost.flops == german.whole_flops


def test_a_task_is_judged_in_the_languages_that_have_examples(
    workshop: Workshop, english: SourceResult, german: LanguageResult, tmp_path: Path
) -> None:
    foreign = workshop.recipe.task().model_copy(update={"languages": ("en", "tr")})
    shop = dataclasses.replace(workshop, recipe=workshop.recipe.model_copy(update={"tasks": (foreign,)}))
    found = judged(shop, tmp_path / "de")
    assert found.tasks == ()
    assert found.masked == german.masked
    assert source_judged(shop, tmp_path / "en").tasks == english.tasks


def test_one_evaluation_is_not_taken_for_the_other_nor_another_artifact_for_one(
    workshop: Workshop, german_folder: Path, english_folder: Path
) -> None:
    with pytest.raises(ArtifactError, match="evaluation of a source, but that of a language is needed"):
        load_language(english_folder)
    with pytest.raises(ArtifactError, match="evaluation of a language, but that of a source is needed"):
        load_source(german_folder)
    with pytest.raises(ArtifactError, match="of kind primary, but one of kind evaluation"):
        load_language(workshop.primary)


def test_seeds_are_averaged_and_a_single_one_says_nothing_of_spread() -> None:
    scores, single = SeedScores(by_seed={1: 0.2, 5: 0.4, 9: 0.6}), SeedScores(by_seed={1: 0.25})
    assert (scores.mean, scores.deviation) == (pytest.approx(0.4), pytest.approx(0.2))
    assert single.mean == 0.25
    assert math.isnan(single.deviation)


def test_embeddings_of_another_primary_are_not_judged(workshop: Workshop, stranger: Path, tmp_path: Path) -> None:
    for tasks in (True, False):
        with pytest.raises(AlignmentError) as caught:
            judged(dataclasses.replace(workshop, primary=stranger), tmp_path / "out", tasks)
        for folder in (workshop.primary, stranger):
            assert load_primary(folder).fingerprint in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_task_of_another_primary_is_not_judged(workshop: Workshop, stranger: Path, tmp_path: Path) -> None:
    workshop.adapt("de", 1, tmp_path / "theirs", primary=stranger)
    shop = dataclasses.replace(workshop, primary=stranger, embeddings={"de": tmp_path / "theirs"})
    with pytest.raises(AlignmentError, match=load_primary(stranger).fingerprint):
        judged(shop, tmp_path / "out")
    with pytest.raises(AlignmentError, match="the task"):
        source_judged(shop, tmp_path / "out")


def test_seeds_that_differ_in_their_labels_are_refused(workshop: Workshop, tmp_path: Path) -> None:
    other = copied(workshop.tasks[2], tmp_path / "other")
    manifest = json.loads((other / MANIFEST).read_text())
    manifest["details"]["labels"] = ["garden", "harbour", "street"]
    (other / MANIFEST).write_text(json.dumps(manifest))
    shop = dataclasses.replace(workshop, tasks={1: workshop.tasks[1], 2: other})
    with pytest.raises(ArtifactError, match=r"seeds of task 'topic' differ in labels: .*kitchen.*street"):
        judged(shop, tmp_path / "out")


def test_text_or_blocks_of_another_language_are_refused(workshop: Workshop, tmp_path: Path) -> None:
    texts = dataclasses.replace(workshop, texts={"de": workshop.texts["tr"]})
    with pytest.raises(TextError, match="text in 'tr', but text in 'de' is needed"):
        judged(texts, tmp_path / "out")
    with pytest.raises(TextError, match="text in 'de', but text in 'en' is needed"):
        source_judged(workshop, tmp_path / "out", language="de")
    blocks = dataclasses.replace(workshop, blocks={"de": workshop.blocks["tr"]})
    with pytest.raises(TokenizerError, match="was made with tokenizer"):
        judged(blocks, tmp_path / "out")


def test_scores_are_kept_item_by_item_or_the_refusal_says_what_to_do(
    workshop: Workshop, german: LanguageResult, german_folder: Path, tmp_path: Path
) -> None:
    result, items = german, load_items(german_folder)
    assert set(items) == {MASKED, MASKED_INITIAL, *(task_item("topic", seed) for seed in workshop.tasks)}
    assert (items[MASKED].score, items[MASKED_INITIAL].score) == (result.masked.primary, result.masked.primary_initial)
    blocks = held_out(workshop, "de")
    assert {len(items[name]) for name in (MASKED, MASKED_INITIAL)} == {len(blocks)}
    assert (items[MASKED].out_of_N == items[MASKED_INITIAL].out_of_N).all()
    for seed, score in topic(result).score.by_seed.items():
        found = items[task_item("topic", seed)]
        assert (len(found), found.score) == (topic(result).examples, score)
    save(result, tmp_path / "before", {})
    with pytest.raises(ArtifactError, match="Judge again"):
        load_items(tmp_path / "before")


def test_masked_tokens_are_predicted_in_as_many_test_blocks_as_the_recipe_names(
    workshop: Workshop, german: LanguageResult, tmp_path: Path
) -> None:
    every_NT = held_out(workshop, "de")
    fewer = dataclasses.replace(workshop, recipe=workshop.recipe.model_copy(update={"test_blocks": 3}))
    result = judged(fewer, tmp_path / "out")
    spread_NT = every_NT[[0, len(every_NT) // 3, 2 * len(every_NT) // 3]]
    source = load_primary(workshop.primary)
    swap(source.encoder, load_embeddings(workshop.embeddings["de"]).vocabulary)
    top = source.encoder.shape.layers
    assert len(load_items(tmp_path / "out")[MASKED]) == 3
    assert result.masked.primary == masked_lm.accuracy(source.encoder, spread_NT, (top,))[top]
    assert topic(result) == topic(german)

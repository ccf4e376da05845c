"""Retrieval across languages: queries in a language, and passages that the source's own embeddings have embedded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data.splits import SplitName
from lingraft.data.text import load_split
from lingraft.errors import RecipeError
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.stages import source_passages
from lingraft.stages.alignment_probe import FEWEST_PAIRS
from lingraft.stages.evaluate import evaluate_language, evaluate_source
from lingraft.stages.finetune import finetune
from lingraft.stages.results import LanguageResult, TaskScores, load_items, load_language, load_source, task_item
from lingraft.tasks.finetuned import load_task
from lingraft.tasks.ranking import Answers, evaluate_vectors
from lingraft.tasks.retrieval import TokenizedTexts, embed
from lingraft.training.schedule import ignore_metrics
from tests.tasks.test_searches import beir, corpus
from tests.workshop import Workshop

SEEDS = (1, 2)


def first_lines(shop: Workshop, language: str, split: SplitName) -> dict[str, str]:
    """First line of each document by its name: parallel lines in the made-up languages."""
    documents = load_split(Artifact.load(shop.texts[language], Kind.TEXT), split)
    return {str(document.name): document.text.split("\n")[0] for document in documents}


class Searching(NamedTuple):
    """A task of kind 'retrieval' with prefixes, finetuned for a moment with two seeds."""

    shop: Workshop
    folder: Path
    tasks: list[Path]

    def recipe(self, **test: Any) -> Recipe:
        """The recipe with other test examples."""
        (task,) = self.shop.recipe.model_dump(mode="json")["tasks"][:1]
        train = {"kind": "file", "path": str(self.folder / "train.tsv")}
        changes = {"name": "search", "kind": "retrieval", "train": train, "dev": train, "test": test, "examples": {}}
        changes["retrieval"] = {"query_prefix": "ba ", "passage_prefix": "de "}
        changes["finetuning"] = {"epochs": 1, "seeds": SEEDS, "learning_rate": 1e-3}
        return Recipe.parse(self.shop.recipe.model_dump(mode="json") | {"tasks": [task | changes]})

    def source(self, recipe: Recipe, out: Path) -> Path:
        """Evaluate the source."""
        evaluate_source(recipe, self.shop.primary, self.tasks, self.shop.texts["en"], self.shop.blocks["en"], out)
        return out

    def german(self, recipe: Recipe, out: Path, evaluation: Path | None = None) -> LanguageResult:
        """Evaluate German."""
        evaluate_language(
            recipe=recipe,
            primary=self.shop.primary,
            embeddings=self.shop.embeddings["de"],
            tasks=self.tasks,
            text=self.shop.texts["de"],
            blocks=self.shop.blocks["de"],
            out=out,
            source_evaluation=evaluation,
        )
        return load_language(out)


@pytest.fixture(scope="module")
def searching(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Searching:
    folder = tmp_path_factory.mktemp("searching")
    pairs = first_lines(workshop, "en", "dev").values()
    (folder / "train.tsv").write_text("".join(f"{line[:12]}\t{line}\n" for line in pairs), encoding="utf-8")
    found = Searching(workshop, folder, [folder / str(seed) for seed in SEEDS])
    for seed, out in zip(SEEDS, found.tasks, strict=True):
        finetune(found.recipe(kind="documents"), "search", workshop.primary, None, seed, out, ignore_metrics)
    english, german = (first_lines(workshop, language, "test") for language in ("en", "de"))
    lines = [f"{english[name]}\t{german[name]}\n" for name in english]
    (folder / "en-de.tsv").write_text("".join(lines), encoding="utf-8")
    texts: Mapping[str, dict[str, str]] = {"en": english, "de": german}
    for language, passages in texts.items():
        queries = {name: text[:20] for name, text in passages.items()}
        beir(folder / language, queries, [(name, name, "1") for name in queries])
        corpus(folder / language / "corpus.jsonl", {name: ("", text) for name, text in passages.items()})
    return found


def test_several_processes_do_not_finetune_it(
    searching: Searching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    primary, recipe = searching.shop.primary, searching.recipe(kind="documents")
    with pytest.raises(RecipeError, match=r"all passages to choose from, and there are 2\. Leave --processes out"):
        finetune(recipe, "search", primary, None, 1, tmp_path / "task", ignore_metrics)


def of_beir(searching: Searching) -> Recipe:
    path = f"{searching.folder}/{{language}}"
    return searching.recipe(kind="beir", path=path, source_corpus=f"{searching.folder}/en/corpus.jsonl")


def scores(result: LanguageResult) -> TaskScores:
    (found,) = result.tasks
    assert found.name == "search"
    return found


def test_lines_are_looked_for_among_vectors_of_the_sources_own_embeddings(searching: Searching, tmp_path: Path) -> None:
    """By hand: passages with the source's tokenizer and vocabulary, queries with the language's."""
    recipe = searching.recipe(kind="parallel", files=f"{searching.folder}/en-{{language}}.tsv")
    found = scores(searching.german(recipe, tmp_path / "out"))
    english, german = (first_lines(searching.shop, language, "test") for language in ("en", "de"))
    primary, learned = load_primary(searching.shop.primary), load_embeddings(searching.shop.embeddings["de"])
    for seed, folder in zip(SEEDS, searching.tasks, strict=True):
        model = load_task(folder)

        def vectors(texts: dict[str, str], prefix: str, whose: Any, model: Any = model) -> torch.Tensor:
            model.swap_in(whose)
            return embed(model.net, TokenizedTexts.of([*texts.values()], prefix, whose.tokenizer, model.shape))

        passages_PE = vectors(english, "de ", primary)
        answers = Answers.of([{row: 1.0} for row in range(len(english))])
        by_hand = evaluate_vectors(vectors(german, "ba ", learned), passages_PE, answers)
        assert found.score.by_seed[seed] == by_hand.score
        assert {name: each.by_seed[seed] for name, each in found.others.items()} == by_hand.others
        fed = evaluate_vectors(vectors(german, "ba ", primary), passages_PE, answers)
        assert found.baselines["source_tokenizer"].by_seed[seed] == fed.score
    assert found.examples == len(german)
    assert found.initial
    assert {*found.baselines} == {"BM25", "source_tokenizer"}
    block = model.shape.block_tokens - 2
    assert (
        found.truncated_passages
        == sum(
            len(ids) > block
            for ids in primary.tokenizer.encode_all([f"de {line}" for line in dict.fromkeys(english.values())])
        )
        > 0
    )
    tallies = load_items(tmp_path / "out")
    assert tallies[task_item("search", 1)].score == found.score.by_seed[1]


def test_a_corpus_is_embedded_once_by_the_evaluation_of_the_source(
    searching: Searching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = of_beir(searching)
    afresh = scores(searching.german(recipe, tmp_path / "without"))
    evaluation = searching.source(recipe, tmp_path / "en")

    def refuse(*_: object) -> None:
        raise AssertionError("embedded again")

    monkeypatch.setattr(source_passages.SourcePassages, "embedded", refuse)
    kept = scores(searching.german(recipe, tmp_path / "with", evaluation))
    assert kept == afresh


def test_a_language_with_passages_of_its_own_is_judged_within_itself_too(searching: Searching, tmp_path: Path) -> None:
    """The source is searched in its only corpus; where there is no other, scores within a language are the task's."""
    both = scores(searching.german(of_beir(searching), tmp_path / "both"))
    own = searching.recipe(kind="beir", path=f"{searching.folder}/{{language}}")
    within = scores(searching.german(own, tmp_path / "own"))
    assert both.others["within_language_accuracy_at_1"] == within.score
    assert both.others["within_language_nDCG_at_10"] == within.others["nDCG_at_10"]
    assert both.baselines["within_language_BM25"] == within.baselines["BM25"]
    assert within.baselines["BM25"].mean > 0.7  # queries are the beginnings of passages
    (english,) = load_source(searching.source(of_beir(searching), tmp_path / "en")).tasks
    assert {*english.others} == {"accuracy_at_10", "MRR_at_10", "nDCG_at_10"}
    assert english.baselines["source_tokenizer"] == english.score


def test_parallel_documents_are_searched_by_what_the_source_keeps(
    searching: Searching, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = searching.recipe(kind="documents")
    evaluation = searching.source(recipe, tmp_path / "en")
    assert load_source(evaluation).tasks == ()
    found = scores(searching.german(recipe, tmp_path / "de", evaluation))
    assert found.examples >= FEWEST_PAIRS
    assert found.baseline <= 1 / FEWEST_PAIRS
    assert {*found.baselines} == {"BM25", "source_tokenizer"}
    assert searching.german(recipe, tmp_path / "alone").tasks == ()
    assert "task 'search' is not judged in 'de': its paragraphs are looked for among those that" in (
        capsys.readouterr().err
    )


def test_titles_are_looked_for_among_documents_in_every_language(searching: Searching, tmp_path: Path) -> None:
    recipe = searching.recipe(kind="documents", queries="titles")
    evaluation = searching.source(recipe, tmp_path / "source")
    found = scores(searching.german(recipe, tmp_path / "out", evaluation))
    english, german = (first_lines(searching.shop, language, "test") for language in ("en", "de"))
    documents = load_split(Artifact.load(searching.shop.texts["en"], Kind.TEXT), "test")
    primary, learned = load_primary(searching.shop.primary), load_embeddings(searching.shop.embeddings["de"])
    [ceiling] = load_source(evaluation).tasks
    assert [*english] == [*german] == [document.name for document in documents]
    for seed, folder in zip(SEEDS, searching.tasks, strict=True):
        model = load_task(folder)
        model.swap_in(primary)
        pages = TokenizedTexts.of(
            [" ".join(each.text.split("\n")) for each in documents], "de ", primary.tokenizer, model.shape
        )
        pages_PE = embed(model.net, pages)
        answers = Answers.of([{row: 1.0} for row in range(len(documents))])
        for titles, whose, said in ((english, primary, ceiling), (german, learned, found)):
            model.swap_in(whose)
            asked = TokenizedTexts.of([*titles.values()], "ba ", whose.tokenizer, model.shape)
            by_hand = evaluate_vectors(embed(model.net, asked), pages_PE, answers)
            assert said.score.by_seed[seed] == by_hand.score
    assert found.examples == ceiling.examples == len(documents)


def test_passages_of_a_body_that_was_finetuned_again_are_not_taken(searching: Searching, tmp_path: Path) -> None:
    recipe = of_beir(searching)
    evaluation = searching.source(recipe, tmp_path / "en")
    primary, models = load_primary(searching.shop.primary), [load_task(folder) for folder in searching.tasks]
    assert source_passages.load_source_passages(evaluation, primary, {"search": models}).keys() == {"search"}
    other = searching.recipe(kind="documents").model_dump(mode="json")
    other["tasks"][0]["finetuning"]["learning_rate"] = 1e-2
    changed = tmp_path / "again"
    finetune(Recipe.parse(other), "search", searching.shop.primary, None, 1, changed, ignore_metrics)
    models[0] = load_task(changed)
    assert source_passages.load_source_passages(evaluation, primary, {"search": models}) == {}

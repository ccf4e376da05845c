"""`python -m benchmarks.demo_search --out .demo`: an index of English pages, asked in the demo's other languages.

It takes the primary, text and embeddings of a demo that has run (`make demo`):

- the primary is finetuned to embed English help pages, by pairs that the pages themselves give;
- pages of the test split, which no training saw, are embedded once and stored in an index of FAISS;
- the index is asked by the translations of these pages, with the embeddings of each language in the finetuned body.

The task's examples are written in BEIR's layout under `search/data`, as you would lay out your own.

Legend: P pages, E width of a vector, N questions, K pages found for each.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.demo_compare import Demo, fetched
from benchmarks.pages import write_picture
from lingraft.artifacts.files import sha256_of, write_json
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import embeddings_name
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import BeirFolder, Finetuning, Task, TaskFile
from lingraft.data.documents import Document
from lingraft.data.languages import name_and_tag
from lingraft.data.text import load_split, load_text
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import LingraftError, MissingExtraError
from lingraft.jobs.training import FinetuningJob, InitialisationJob, VectorsJob
from lingraft.model.loading import Embeddings, Primary, load_embeddings, load_primary
from lingraft.reports.plotting import COLOURS, Drawing, legend_above, percent_ticks
from lingraft.stages.passage_search import PassageSearch
from lingraft.stages.source_passages import SourcePassages, retrieval_of
from lingraft.tables import megabytes, percent, text_table
from lingraft.tasks.finetuned import TaskModel, load_task
from lingraft.tasks.ranking import DEPTH, Answers
from lingraft.tasks.retrieval import TokenizedTexts, embed
from lingraft.tasks.searches import SearchData, load_searches
from pipelines import local

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASK, SEED = "help-search", 1
FINETUNING = Finetuning(epochs=3, batch_examples=32, learning_rate=2e-3, seeds=(SEED,))
LINKS, SEARCHED = 32, 64
"""Neighbours of a vector in the index's graph, and those that a search looks at."""
_SAMPLES, _SAMPLE_CHARACTERS = 3, 70
ARMS = {
    "english": "English model as it is",
    "aligned": "aligned rows, untrained",
    "learned": "embeddings learned",
}
"""Embeddings that a question is embedded with, by their name in the records."""


class Accuracy(NamedTuple):
    """Shares of questions whose page is found."""

    at_1: float
    at_10: float


class LanguageScores(NamedTuple):
    """Scores of the questions in one language."""

    questions: int
    copied_words: float
    """Accuracy@1 of BM25 over the pieces that both tokenizers share."""
    found: dict[str, Accuracy]
    """Accuracy by name of `ARMS`."""


def training_pairs(page: Document) -> Iterator[tuple[str, str]]:
    """Yield queries with their passages from a page: its title with its text, and every other line with the others."""
    title, *lines = page.text.split("\n")
    if lines:
        yield title, " ".join(lines)
    if len(lines) > 2:
        yield " ".join([title, *lines[1::2]]), " ".join(lines[::2])


def write_examples(folder: Path, texts: Mapping[str, Path], source: str) -> None:
    """Write the examples of the task: English pairs, English pages, and the pages of each language as questions.

    Args:
        folder: where to write them.
        texts: text of each language, the source among them.
        source: language of the index.

    Raises:
        LingraftError: no page of a language is a translation of an English one.
    """
    english = {split: load_split(load_text(texts[source], source), split) for split in ("train", "dev", "test")}
    for split in ("train", "dev"):
        pairs = (pair for page in english[split] for pair in training_pairs(page))
        _write_lines(folder / f"{split}.jsonl", ({"query": query, "passage": passage} for query, passage in pairs))
    passages = {page.name: _one_line(page) for page in english["test"]}
    _write_lines(folder / source / "corpus.jsonl", ({"_id": name, "text": text} for name, text in passages.items()))
    for language in texts.keys() - {source}:
        found = {page.name: _one_line(page) for page in load_split(load_text(texts[language], language), "test")}
        # A page that is not translated would be found by any embeddings.
        asked = {name: text for name, text in found.items() if text != passages.get(name, text)}
        if not asked:
            raise LingraftError(
                f"no test page in {language!r} has the name of one in {source!r}: the search needs pages that are "
                "translations of each other, as the demo's help pages are."
            )
        _write_lines(folder / language / "queries.jsonl", ({"_id": name, "text": text} for name, text in asked.items()))
        judged = folder / language / "qrels" / "test.tsv"
        judged.parent.mkdir()
        rows = ["query-id\tcorpus-id\tscore", *(f"{name}\t{name}\t1" for name in asked)]
        judged.write_text("\n".join(rows) + "\n", encoding="utf-8")


def search_task(folder: Path, source: str) -> Task:
    """Return the task over the examples that `write_examples` wrote."""
    return Task(
        name=TASK,
        kind="retrieval",
        train=TaskFile(kind="file", path=str(folder / "train.jsonl")),
        dev=TaskFile(kind="file", path=str(folder / "dev.jsonl")),
        test=BeirFolder(
            kind="beir", path=str(folder / "{language}"), source_corpus=str(folder / source / "corpus.jsonl")
        ),
        finetuning=FINETUNING,
    )


def write_index(vectors_PE: Tensor, file: Path) -> None:
    """Store vectors in an index of FAISS: a graph of neighbours (HNSW) by cosine."""
    faiss = _faiss()
    index = faiss.IndexHNSWFlat(vectors_PE.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efSearch = SEARCHED
    index.add(_unit(vectors_PE))
    faiss.write_index(index, str(file))


def ask(file: Path, questions_NE: Tensor, count: int = DEPTH) -> Tensor:
    """Return the numbers (N, K) of the pages that an index finds for questions, the nearest first; -1 behind the last.

    Args:
        file: index that `write_index` wrote.
        questions_NE: vectors of the questions.
        count: pages for each question.
    """
    _, found_NK = _faiss().read_index(str(file)).search(_unit(questions_NE), count)
    return torch.from_numpy(found_NK)


def accuracy(found_NK: Tensor, answers: Answers) -> Accuracy:
    """Return how many of the questions, which have one answer each, find it first and among the first ten."""
    right_NK = found_NK[:, :DEPTH] == answers.passages_NK
    return Accuracy(float(right_NK[:, 0].double().mean()), float(right_NK.any(1).double().mean()))


@dataclass(frozen=True)
class HelpSearch:
    """A demo that has run, and the index of its English pages."""

    demo: Demo
    work: Path

    @cached_property
    def data(self) -> Path:
        """Folder of the task's examples, written once."""
        recipe, folder = self.demo.recipe, self.work / "data"
        write_examples(folder, {each: self.demo.lane(each).text for each in recipe.languages}, recipe.source.language)
        return folder

    @cached_property
    def recipe(self) -> Recipe:
        """The demo's recipe, with the search as its task."""
        recipe = self.demo.recipe
        return recipe.model_copy(update={"tasks": (search_task(self.data, recipe.source.language),)})

    @cached_property
    def model(self) -> TaskModel:
        """The finetuned body."""
        out = self.work / "task"
        return load_task(
            FinetuningJob(recipe=self.recipe, task=TASK, seed=SEED, primary=self.demo.primary, out=out)
            .get_or_make()
            .folder
        )

    @cached_property
    def source(self) -> Primary:
        """The demo's primary."""
        return load_primary(self.demo.primary, self.demo.recipe.primary_shape)

    @property
    def pages(self) -> Sequence[str]:
        """English test pages, which are the same for the questions of every language."""
        return self.searches[self.recipe.targets[0]].passages

    @cached_property
    def embedded(self) -> SourcePassages:
        """These pages, embedded once."""
        return SourcePassages.embedded([self.model], self.source, self.pages)

    @cached_property
    def index(self) -> Path:
        """File of the index, written once."""
        file = self.work / "pages.faiss"
        write_index(self.embedded.vectors[SEED], file)
        return file

    @cached_property
    def _source_vectors(self) -> Path:
        lane, out = self.demo.lane(self.recipe.source.language), self.work / "vectors"
        return (
            VectorsJob(recipe=self.recipe, blocks=lane.blocks, tokenizer=lane.tokenizer, out=out).get_or_make().folder
        )

    @cached_property
    def searches(self) -> dict[str, SearchData]:
        """Questions in each language, the English pages, and which page answers which question."""
        return {language: load_searches(self.recipe.task(TASK), language)[0] for language in self.recipe.targets}

    def initial(self, language: str) -> Path:
        """Embeddings of a language as they are before training."""
        lane = self.demo.lane(language)
        job = InitialisationJob(
            recipe=self.recipe,
            language=language,
            primary=self.demo.primary,
            tokenizer=lane.tokenizer,
            blocks=lane.blocks,
            source_vectors=self._source_vectors,
            out=self.work / f"initial-{language}",
        )
        return job.get_or_make().folder

    def learned(self, language: str) -> Path:
        """Embeddings of a language that the demo learned and registered."""
        return fetched(self.work / f"learned-{language}", embeddings_name(self.recipe, language), Kind.EMBEDDINGS)

    def vectors(self, texts: Sequence[str], tokenizer: Tokenizer) -> Tensor:
        """Embed questions (N, E) with the embeddings that the body has."""
        prefix = retrieval_of([self.model]).settings.query_prefix
        return embed(self.model.net, TokenizedTexts.of(texts, prefix, tokenizer, self.model.shape))

    def scores(self, language: str) -> LanguageScores:
        """Ask the index in a language: with the English model, with aligned rows, and with what was learned."""
        search, found = self.searches[language], {}
        answers = Answers.of(search.answers)
        aligned, learned = load_embeddings(self.initial(language)), load_embeddings(self.learned(language))
        arms: tuple[Primary | Embeddings, ...] = (self.source, aligned, learned)
        for arm, rows in zip(ARMS, arms, strict=True):
            self.model.swap_in(rows)
            found[arm] = accuracy(ask(self.index, self.vectors(search.queries, rows.tokenizer)), answers)
        judged = PassageSearch.of(
            seeds=[self.model],
            source=self.source,
            tokenizer=learned.tokenizer,
            queries=search.queries,
            passages=self.embedded,
            answers=answers,
        )
        return LanguageScores(len(search.queries), judged.by_shared_pieces().score, found)

    def samples(self, language: str) -> Iterator[str]:
        """Ask some questions in a language with what was learned; yield each, and the start of the page found."""
        search, learned = self.searches[language], load_embeddings(self.learned(language))
        self.model.swap_in(learned)
        chosen = [len(search.queries) * (2 * number + 1) // (2 * _SAMPLES) for number in range(_SAMPLES)]
        asked = [search.queries[row] for row in chosen]
        found_N = ask(self.index, self.vectors(asked, learned.tokenizer), count=1)[:, 0]
        for row, page in zip(chosen, found_N.tolist(), strict=True):
            yield search.queries[row][:_SAMPLE_CHARACTERS]
            right = "right" if page in search.answers[row] else "wrong"
            yield f"    -> {search.passages[page][:_SAMPLE_CHARACTERS]} ({right})"


def table(by_language: Mapping[str, LanguageScores]) -> list[str]:
    """Lines of the table that the last screen shows."""
    head = ["language", "questions", "copied words @1"]
    head += [f"{arm} @{count}" for arm in ARMS for count in (1, DEPTH)]
    rows = [
        [
            name_and_tag(language),
            str(scores.questions),
            percent(scores.copied_words),
            *(percent(share) for arm in ARMS for share in scores.found[arm]),
        ]
        for language, scores in by_language.items()
    ]
    return text_table([head, *rows])


def drawing(by_language: Mapping[str, LanguageScores]) -> Drawing:
    """Bars of accuracy@1 and accuracy@10 by language, before and after."""
    names = [name_and_tag(language) for language in by_language]

    def paint(figure: "Figure") -> None:
        panels = figure.subplots(1, 2, sharey=True)
        for place, (axes, count) in enumerate(zip(panels, (1, DEPTH), strict=True)):
            for number, (arm, colour) in enumerate(zip(ARMS, ("grey", "sky", "blue"), strict=True)):
                shares = [scores.found[arm][place] for scores in by_language.values()]
                bars = axes.bar(
                    np.arange(len(names)) + 0.27 * (number - 1),
                    shares,
                    width=0.25,
                    color=COLOURS[colour],
                    label=ARMS[arm],
                )
                axes.bar_label(bars, [f"{100 * share:.0f}" for share in shares], padding=2)
            axes.set_xticks(range(len(names)), names)
            axes.set_title(f"accuracy@{count}")
            axes.grid(axis="x", visible=False)
        panels[0].set_ylim(0, 1.05)
        percent_ticks(panels[0].yaxis)
        legend_above(figure, panels)

    alt = "Bars: how often the page is found, by language, before and after."
    return Drawing(title="One English index, asked in other languages", caption="", alt=alt, paint=paint, height_in=2.9)


def main() -> None:
    """Build the index, ask it, print the table, and write search.json and the picture beside the index."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(".demo"), help="folder of the demo's results")
    parser.add_argument("--recipe", type=Path, default=Path("recipes/demo.toml"), help="the demo's recipe")
    arguments = parser.parse_args()
    try:
        recipe = Recipe.load(arguments.recipe)
        local.set_up(arguments.out)
        work = arguments.out / "search"
        shutil.rmtree(work, ignore_errors=True)
        run(HelpSearch(Demo(recipe, work), work))
    except LingraftError as error:
        sys.exit(f"error: {error}")


def run(search: HelpSearch) -> None:
    """Ask the index in every language of the demo.

    Raises:
        LingraftError: the index's file has changed, or the demo has not run.
    """
    # Without a demo's primary, this ends before text is prepared.
    print(f"primary {search.source.fingerprint[:12]} of {search.demo.recipe.name}", flush=True)
    recipe, file = search.recipe, search.index
    before = sha256_of(file)
    pages = search.pages
    width, size = search.model.net.width, megabytes(file.stat().st_size)
    print(f"\n{file}: {len(pages)} English test pages, {width} numbers each, {size} MB\nsha256 {before}\n")
    by_language = {language: search.scores(language) for language in recipe.targets}
    print(*table(by_language), "", *(f"{arm}: {what}" for arm, what in ARMS.items()), sep="\n")
    for language in recipe.targets:
        print("", f"{name_and_tag(language)}:", *search.samples(language), sep="\n")
    if (after := sha256_of(file)) != before:
        raise LingraftError(f"{file} has changed while it was asked: sha256 {after}. Build it anew.")
    print(f"\nsha256 {after}, as before: no vector was written for a new language.")
    record = {"index_sha256": before, "pages": len(pages), "languages": _as_json(by_language)}
    write_json(search.work / "search.json", record)
    write_picture(search.work / "search.png", drawing(by_language).png())


def _as_json(by_language: Mapping[str, LanguageScores]) -> dict[str, Any]:
    return {
        language: scores._asdict() | {"found": {arm: each._asdict() for arm, each in scores.found.items()}}
        for language, scores in by_language.items()
    }


def _one_line(page: Document) -> str:
    return " ".join(page.text.split("\n"))


def _write_lines(file: Path, records: Iterable[Mapping[str, str]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in records), encoding="utf-8")


def _unit(vectors_NE: Tensor) -> Any:
    return F.normalize(vectors_NE).numpy()


def _faiss() -> Any:
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise MissingExtraError("faiss-cpu", "dev") from error
    return faiss


if __name__ == "__main__":
    main()

"""Tests of retrieval: queries of a language, and the passages that they are looked for in; without PyTorch."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.config.tasks import BeirFolder, ParallelDocuments, ParallelLines, Task
from lingraft.data.parallel_text import file_names, is_held_out, read_pairs
from lingraft.errors import TextError, raise_errors
from lingraft.tasks.examples import load_examples
from lingraft.tasks.rows import Layouts, Row, find_column, rows_or_errors, text_of

_TEXTS = Layouts((("_id",), ("text",)), ())
_JUDGEMENTS = Layouts((("query-id",), ("corpus-id",), ("score",)), (("query-id", "corpus-id", "score"),))


@dataclass(frozen=True)
class SearchData:
    """Queries of a language, and the passages that they are looked for in."""

    queries: tuple[str, ...]
    passages: tuple[str, ...]
    """Passages, no two alike unless their ids in the data differ."""
    answers: tuple[Mapping[int, float], ...]
    """Gain, above 0, by number of each passage that answers a query; one at least a query."""
    in_source: bool
    """Whether passages are in the source language, whatever the language of the queries."""


def load_searches(task: Task, language: str, source: str) -> list[SearchData]:
    """Load the searches that a task of kind 'retrieval' is tested by in a language; the first gives the task's score.

    Args:
        task: the task.
        language: language of the queries.
        source: source language.

    Raises:
        MissingExtraError: they come from Hugging Face, and the package `datasets` is not installed.
        TextError: they cannot be read, are of another layout, or leave nothing to choose from; or the task is tested by
            the recipe's parallel documents, which `lingraft.stages.task_tests` pairs.
    """
    match task.test:
        case ParallelDocuments():
            raise TextError(
                f"task {task.name!r} is tested by the recipe's parallel documents, which only evaluations of a recipe "
                "pair. Name another kind of test examples."
            )
        case ParallelLines() as lines:
            files = lines.in_language(language)
            pairs = [pair for pair in read_pairs(files, (source, language)) if is_held_out(pair) or not lines.held_out]
            found = [_of_pairs([(pair.target, pair.source) for pair in pairs], in_source=True)]
            origin = file_names(files)
        case BeirFolder() as folder:
            found, origin = _of_beir(folder, language), str(folder.in_language(language))
        case _:
            examples = load_examples(task, "test", language, None)
            found = [_of_pairs([(example.query, example.passage) for example in examples], in_source=False)]
            origin = f"the test examples of task {task.name!r} in {language!r}"
    for search in found:
        if len(search.passages) < 2:
            raise TextError(
                f"{origin}: {len(search.queries)} queries have {len(search.passages)} passage to choose from. Add "
                "examples with others."
            )
    return found


def _of_pairs(pairs: Iterable[tuple[str, str]], in_source: bool) -> SearchData:
    """Search for each query's passage among all; equal passages are one, and so are equal queries."""
    numbers: dict[str, int] = {}
    answers: dict[str, dict[int, float]] = {}
    for query, passage in pairs:
        answers.setdefault(query, {})[numbers.setdefault(passage, len(numbers))] = 1.0
    return SearchData(tuple(answers), tuple(numbers), tuple(answers.values()), in_source)


def _of_beir(folder: BeirFolder, language: str) -> list[SearchData]:
    """Search in the source's corpus, if one is named, then in the language's own, if there is one."""
    place = folder.in_language(language)
    queries = read_texts(place / "queries.jsonl", language)
    judgements = [*_rows(_judgements_file(place / "qrels"), language, _JUDGEMENTS)]
    corpora = [(Path(folder.source_corpus), True)] if folder.source_corpus else []
    own = place / "corpus.jsonl"
    # In the source language the two are one, so that queries are not looked for twice.
    if not corpora or (own.exists() and not own.samefile(corpora[0][0])):
        corpora.append((own, False))
    return [_judged(queries, corpus, judgements, language, in_source) for corpus, in_source in corpora]


def _judgements_file(folder: Path) -> Path:
    for path in (folder / "test.tsv", folder / "test.jsonl"):
        if path.is_file():
            return path
    raise TextError(
        f"{folder} has neither test.tsv nor test.jsonl, which name the answers of queries. Add one of them."
    )


def _judged(
    queries: Mapping[str, str], corpus: Path, judgements: Iterable[Row], language: str, in_source: bool
) -> SearchData:
    """Search by the queries that have an answer."""
    passages = read_texts(corpus, language)
    numbers = {name: number for number, name in enumerate(passages)}
    answers: dict[str, dict[int, float]] = {}
    for row in judgements:
        query, passage = (text_of(row, find_column(row, (name,))) for name in ("query-id", "corpus-id"))
        gain = _gain(row.cells[find_column(row, ("score",))], row.place)
        for name, known, where in ((query, queries, "queries.jsonl"), (passage, numbers, corpus)):
            if name not in known:
                raise TextError(f"{row.place}: {where} has no id {name!r}. Add it, or remove the line.")
        if gain > 0:
            answers.setdefault(query, {})[numbers[passage]] = gain
    if not answers:
        raise TextError(f"no query has a passage of {corpus} with a score above 0. Give others in qrels.")
    asked = tuple(queries[name] for name in answers)
    return SearchData(asked, tuple(passages.values()), tuple(answers.values()), in_source)


def read_texts(path: Path, language: str) -> dict[str, str]:
    """Read the queries or the corpus of a folder in BEIR's layout, by id."""
    texts: dict[str, str] = {}
    for row in _rows(path, language, _TEXTS):
        name = text_of(row, find_column(row, ("_id",)))
        if name in texts:
            raise TextError(f"{row.place}: id {name!r} is another text's, too. Give each text an id of its own.")
        texts[name] = _text(row)
    return texts


def _rows(path: Path, language: str, layouts: Layouts) -> Iterable[Row]:
    return raise_errors(rows_or_errors(path, language, layouts))


def _text(row: Row) -> str:
    """A text behind its title, as BEIR and MTEB join them."""
    title = text_of(row, "title") if row.cells.get("title") else ""
    return f"{title} {text_of(row, find_column(row, ('text',)))}".strip()


def _gain(value: Any, place: str) -> float:
    try:
        gain = float(value)
    except (TypeError, ValueError):
        gain = math.nan
    if not math.isfinite(gain):
        raise TextError(f"{place}: the score must be a finite number, not {value!r}. Correct or remove the line.")
    return gain

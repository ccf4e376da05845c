"""Questions of a language, looked for among English paragraphs: MLQA's dev set, XQuAD, or folders in BEIR's layout."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lingraft.config.tasks import BeirFolder, Task
from lingraft.errors import TextError
from lingraft.tasks.searches import load_searches

_MLQA = "mlqa/dev-context-{0}-question-{0}.json"
_XQUAD = "xquad/xquad.{0}.json"


class Search(NamedTuple):
    """Questions, and the paragraphs that they are looked for in."""

    name: str
    questions: tuple[str, ...]
    paragraphs: tuple[str, ...]
    answers: tuple[frozenset[int], ...]
    """Numbers of the paragraphs that answer a question."""
    english: tuple[str, ...] = ()
    """English versions of the questions, if the data has them."""


def load(given: Path, language: str) -> list[Search]:
    """Load the searches in a folder that have questions of a language.

    The folder holds `mlqa/` and `xquad/` with their own files, or other folders: `NAME/en/corpus.jsonl`, and
    `queries.jsonl` with `qrels/test.tsv` in `NAME/LANGUAGE/`.

    Raises:
        TextError: it has none, or they cannot be read.
    """
    found = [
        _squad(layout.partition("/")[0], *(_entries(given / layout.format(each)) for each in ("en", language)))
        for layout in (_MLQA, _XQUAD)
        if (given / layout.format(language)).exists()
    ]
    found += [_beir(queries.parents[1], language) for queries in sorted(given.glob(f"*/{language}/queries.jsonl"))]
    if not found:
        raise TextError(
            f"{given} has no questions in {language!r}. Add {_XQUAD.format(language)}; or NAME/en/corpus.jsonl, "
            f"NAME/{language}/queries.jsonl and NAME/{language}/qrels/test.tsv."
        )
    return found


def cosines(questions: np.ndarray, paragraphs: np.ndarray) -> np.ndarray:
    """Cosines of all pairs of two sets of vectors."""
    questions, paragraphs = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (questions, paragraphs))
    return questions @ paragraphs.T


def score(search: Search, found: np.ndarray) -> dict[str, float]:
    """Share of the questions, in %, that have an answer first, and in ten, by their cosines with the paragraphs."""
    ranks = np.array([sum(row > max(row[[*answers]])) for row, answers in zip(found, search.answers, strict=True)])
    return {"first": 100 * float(np.mean(ranks < 1)), "in ten": 100 * float(np.mean(ranks < 10))}


def _entries(path: Path) -> dict[str, tuple[str, str]]:
    """Question and paragraph of a file in SQuAD's format, by the question's id."""
    found = {}
    for paragraph in _paragraphs(path):
        for question in paragraph["qas"]:
            found[question["id"]] = (question["question"], paragraph["context"])
    return found


def _paragraphs(path: Path) -> Iterator[dict[str, Any]]:
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        yield from article["paragraphs"]


def _squad(name: str, english: dict[str, tuple[str, str]], asked: dict[str, tuple[str, str]]) -> Search:
    """Look for questions in the paragraphs that have the same questions in English."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(text for _, text in english.values()))}
    shared = [each for each in asked if each in english]
    return Search(
        name,
        tuple(asked[each][0] for each in shared),
        tuple(numbers),
        tuple(frozenset({numbers[english[each][1]]}) for each in shared),
        tuple(english[each][0] for each in shared),
    )


def _beir(folder: Path, language: str) -> Search:
    test = BeirFolder(kind="beir", path=f"{folder}/{{language}}", source_corpus=str(folder / "en" / "corpus.jsonl"))
    data = load_searches(Task(name=folder.name, kind="retrieval", test=test), language, "en")[0]
    return Search(folder.name, data.queries, data.passages, tuple(map(frozenset, data.answers)))

"""English pages as a retrieval task: examples in BEIR's layout, and an index of FAISS; for other benchmarks.

Legend: P pages, E width of a vector, N questions, K pages found for each.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lingraft.data.documents import Document
from lingraft.data.text import load_split, load_text
from lingraft.errors import LingraftError, MissingExtraError
from lingraft.tasks.ranking import DEPTH

LINKS, SEARCHED = 32, 64
"""Neighbours of a vector in the index's graph, and those that a search looks at."""


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

"""A language that is added to an index of vectors: what it takes, against embedding the index anew.

The added language is the first one in other letters, with equal rows, so that it is known which passage a query is a
translation of.

Legend: N texts, E width of a vector.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.embedding_model.made import ADDED, TASK, Models, added_text
from benchmarks.serving import words
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import sha256_of
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import VECTORS
from lingraft.console import with_progress
from lingraft.errors import MissingExtraError
from lingraft.serving.bundle import Bundle, open_language
from lingraft.serving.handlers.handler import TEXT, TRUNCATE, TaskInput, encode_rows, run_batch
from lingraft.serving.served_bundles import ServedBundles
from lingraft.tasks.ranking import DEPTH

SHORTEST, LONGEST = 8, 16
"""Tokens of a passage, all lengths between them alike."""
LINKS, SEARCHED = 32, 64
"""Neighbours of a vector in the index's graph, and those that a search looks at."""
_BATCH = 32


class Instant(NamedTuple):
    """Seconds of a clock, and of processors that have worked for this process."""

    elapsed_s: float
    cpu_s: float

    @classmethod
    def now(cls) -> Self:
        """Read both clocks."""
        return cls(time.perf_counter(), time.process_time())

    def until_now(self) -> Self:
        """Return the seconds since."""
        return type(self)(*(now - then for now, then in zip(Instant.now(), self, strict=True)))


def measured(models: Models, passages: int, queries: int, work: Path) -> dict[str, Any]:
    """Seconds, vectors and bytes of both ways, and how many queries in the added language find their passage.

    Args:
        models: the models; the bundle with float32 tables embeds.
        passages: vectors of the index.
        queries: queries in the added language, each the translation of a passage.
        work: folder of the index.
    """
    draw = random.Random(3)
    longest = min(LONGEST, models.plan.shape.block_tokens)
    texts = words.texts(models.tokenizer, [draw.randint(SHORTEST, longest) for _ in range(passages)], seed=3)
    served = ServedBundles.load([models.bundle("float32")])
    first = models.plan.tags[0]
    began = Instant.now()
    vectors_NE = embed(served[TASK.name], texts, first)
    embedding = began.until_now()
    file = work / "passages.faiss"
    began = Instant.now()
    write_index(vectors_NE, file)
    indexing = began.until_now()
    before = sha256_of(file)

    asked = draw.sample(range(passages), queries)
    began = Instant.now()
    addition = Artifact.load(models.addition, Kind.BUNDLE)
    served.put_language(TASK.name, ADDED, open_language(addition, ADDED, served.opened_files))
    embed(served[TASK.name], [added_text(texts[asked[0]])], ADDED)
    adding = began.until_now()
    questions_NE = embed(served[TASK.name], [added_text(texts[row]) for row in asked], ADDED)
    found_N = ask(file, questions_NE, count=1)[:, 0]
    exact_N = (questions_NE @ vectors_NE.T).argmax(1)
    after = sha256_of(file)
    return {
        "passages": passages,
        "queries": queries,
        "tokens": [SHORTEST, longest],
        "embedding": embedding._asdict(),
        "indexing": indexing._asdict(),
        "adding": adding._asdict(),
        "table_bytes": served[TASK.name].languages[ADDED].table.nbytes,
        "index_bytes": file.stat().st_size,
        "sha256": [before, after],
        "found": float((found_N == torch.tensor(asked)).double().mean()),
        "found_exactly": float((exact_N == torch.tensor(asked)).double().mean()),
    }


def embed(bundle: Bundle, texts: Sequence[str], language: str) -> Tensor:
    """Return the vectors (N, E) of texts in one language, in batches of like lengths."""
    rows = encode_rows(bundle, TaskInput({TEXT: [*texts]}, [language] * len(texts), {TRUNCATE: True}))
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    vectors_NE = np.empty((len(rows), bundle.sizes.width), np.float32)
    starts = range(0, len(order), _BATCH)
    for start in with_progress(starts, f"embed {len(rows):,} texts", "batch", len(starts)):
        chosen = order[start : start + _BATCH]
        vectors_NE[chosen] = [each[VECTORS] for each in run_batch(bundle, [rows[place] for place in chosen])]
    return torch.from_numpy(vectors_NE)


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


def _unit(vectors_NE: Tensor) -> Any:
    return F.normalize(vectors_NE).numpy()


def _faiss() -> Any:
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise MissingExtraError("faiss-cpu", "dev") from error
    return faiss

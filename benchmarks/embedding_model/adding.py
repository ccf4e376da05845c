"""A language that is added to an index of vectors: what it takes, against embedding the index anew.

The added language is the first one in other letters, with equal rows, so that it is known which passage a query is a
translation of. How well a language is learned is measured elsewhere (`benchmarks.demo_search`).

Legend: N texts, E width of a vector.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.demo_search import ask, write_index
from benchmarks.embedding_model.made import ADDED, TASK, Models, added_text
from benchmarks.serving import words
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import sha256_of
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import VECTORS
from lingraft.console import with_progress
from lingraft.serving.bundle import Bundle, open_language
from lingraft.serving.handlers.handler import TEXT, TRUNCATE, TaskInput, encode_rows, run_batch
from lingraft.serving.served_bundles import ServedBundles

SHORTEST, LONGEST = 8, 24
"""Tokens of a passage, all lengths between them alike."""
_BATCH = 32


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
    began = time.perf_counter()
    vectors_NE = embed(served[TASK.name], texts, first)
    embedding_s = time.perf_counter() - began
    file = work / "passages.faiss"
    write_index(vectors_NE, file)
    indexing_s = time.perf_counter() - began - embedding_s
    before = sha256_of(file)

    asked = draw.sample(range(passages), queries)
    began = time.perf_counter()
    addition = Artifact.load(models.addition, Kind.BUNDLE)
    served.put(TASK.name, ADDED, open_language(addition, ADDED, served.opened_files))
    adding_s = time.perf_counter() - began
    embed(served[TASK.name], [added_text(texts[asked[0]])], ADDED)
    answering_s = time.perf_counter() - began - adding_s
    questions_NE = embed(served[TASK.name], [added_text(texts[row]) for row in asked], ADDED)
    found_N = ask(file, questions_NE, count=1)[:, 0]
    exact_N = (questions_NE @ vectors_NE.T).argmax(1)
    after = sha256_of(file)
    return {
        "passages": passages,
        "queries": queries,
        "tokens": [SHORTEST, longest],
        "embedding_s": embedding_s,
        "indexing_s": indexing_s,
        "adding_s": adding_s,
        "answering_s": answering_s,
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

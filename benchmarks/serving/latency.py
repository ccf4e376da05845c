"""Latency at batch 1: rows gathered outside and a shared body, against a model that holds one fixed language.

Legend: B batch, T tokens.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.serving.made import TOPIC, Models
from benchmarks.serving.turns import in_turns, medians
from lingraft.bundle.format import TABLE_FORMATS
from lingraft.bundle.runtime import Body
from lingraft.serving.bundle import Bundle

FIXED = "fixed"
LENGTHS = (8, 16, 32, 64, 128)


def measured(models: Models, rounds: int, lengths: Sequence[int] = LENGTHS) -> dict[str, Any]:
    """Median milliseconds by length and side: the fixed model, and bundles by their tables' format.

    Each round asks in another language; all sides of a round have the same ids.
    """
    fixed = Body.open(models.separate(TOPIC)).session
    bundles = {tables: Bundle.load(models.bundle(tables, TOPIC)) for tables in TABLE_FORMATS}
    found = {}
    for length in (each for each in lengths if each <= models.plan.shape.block_tokens):
        drawn_T = drawn(models.plan.vocabulary, length, seed=length)
        sides = {FIXED: fixed_side(fixed, drawn_T)}
        sides |= {tables: _in_each_language(bundle, drawn_T) for tables, bundle in bundles.items()}
        found[str(length)] = medians(in_turns(sides, rounds))
    return {"rounds": rounds, "ms": found}


def drawn(vocabulary: int, length: int, seed: int) -> NDArray[np.int64]:
    """A row of ordinary ids."""
    return np.random.default_rng(seed).integers(5, vocabulary, length)


def fixed_side(session: Any, ids_T: NDArray[np.int64]) -> Callable[[], Any]:
    """The floor: plain ONNX Runtime on one model, from ids to logits."""
    given = {"input_ids": ids_T[None], "attention_mask": np.ones((1, len(ids_T)), np.int64)}
    names = [output.name for output in session.get_outputs()]
    return lambda: session.run(names, given)


def _in_each_language(bundle: Bundle, ids_T: NDArray[np.int64]) -> Callable[[], Any]:
    ids, languages = ids_T.tolist(), itertools.cycle(bundle.languages)
    return lambda: bundle.body.run(*bundle.gather([(next(languages), ids)]))

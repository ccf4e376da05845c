"""Throughput through the queue: a stream of all languages, a stream of one, and a session for each language.

The third is what serves today: its texts wait in the same queue, and share a batch with those of their own language
only. All have the same ids and lengths, in the same order.

Legend: B batch, T tokens.
"""

import asyncio
import contextlib
import random
import statistics
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from benchmarks.serving.latency import drawn
from benchmarks.serving.load import Load, load
from benchmarks.serving.made import TOPIC, Models
from benchmarks.serving.memory import separate_that_fit
from lingraft.bundle.runtime import Body, default_provider
from lingraft.serving.bundle import Bundle
from lingraft.serving.endpoint import queue_limits
from lingraft.serving.handlers.handler import TokenRow, run_batch
from lingraft.serving.queue import BatchQueue
from lingraft.serving.settings import ServingSettings

MIXED, SINGLE, SEPARATE = "mixed", "single", "separate"
CLIENTS = (1, 4, 16, 32)
SHORTEST, LONGEST = 8, 64
"""Tokens of a text, all lengths between them alike."""


class Separate(NamedTuple):
    """One language's model."""

    language: str
    session: Any


class _Asked(NamedTuple):
    snapshot: Any
    row: TokenRow


def measured(models: Models, texts: int, rounds: int, clients: Sequence[int] = CLIENTS) -> dict[str, Any]:
    """Texts a second and latency, by number of clients and side; medians of the rounds."""
    return asyncio.run(_measured(models, texts, rounds, clients))


async def _measured(models: Models, texts: int, rounds: int, clients: Sequence[int]) -> dict[str, Any]:
    bundle = Bundle.load(models.bundle("float32", TOPIC))
    separate, sessions = _separate(models)
    rows = _rows(models, texts)
    first = models.plan.tags[0]
    asked = {
        MIXED: [_Asked(bundle, row) for row in rows],
        SINGLE: [_Asked(bundle, TokenRow(first, row.ids, None, row.text)) for row in rows],
        SEPARATE: [_Asked(separate[row.language], row) for row in rows],
    }
    runs = {MIXED: run_batch, SINGLE: run_batch, SEPARATE: run_separate}
    found: dict[str, dict[str, list[Load]]] = {str(count): {side: [] for side in asked} for count in clients}
    for side, run_side in runs.items():
        await _through(run_side, asked[side][: 2 * max(clients)], max(clients))
    for number in range(rounds):
        for count in clients:
            for side in list(runs)[:: -1 if number % 2 else 1]:
                found[str(count)][side].append(await _through(runs[side], asked[side], count))
    return {
        "texts": texts,
        "rounds": rounds,
        "sessions": sessions,
        "loads": {count: {side: middle(each).plain() for side, each in one.items()} for count, one in found.items()},
    }


def _separate(models: Models) -> tuple[dict[str, Separate], int]:
    """Each language's model, and how many sessions they are: where not all fit into memory, some languages run in one,
    but share no batch."""
    tags = models.plan.tags
    count = min(len(tags), separate_that_fit(models))
    sessions = [Body.open(models.separate(TOPIC), default_provider()).session for _ in range(count)]
    return {tag: Separate(tag, sessions[place % count]) for place, tag in enumerate(tags)}, count


def _rows(models: Models, count: int) -> list[TokenRow]:
    draw = random.Random(1)
    lengths = [draw.randint(min(SHORTEST, models.plan.shape.block_tokens), longest(models)) for _ in range(count)]
    return [
        TokenRow(draw.choice(models.plan.tags), drawn(models.plan.vocabulary, length, seed).tolist(), None, 0)
        for seed, length in enumerate(lengths)
    ]


def longest(models: Models) -> int:
    """Tokens of the longest text."""
    return min(LONGEST, models.plan.shape.block_tokens)


async def _through(run_side: Callable[[Any, Sequence[TokenRow]], Any], asked: Sequence[_Asked], clients: int) -> Load:
    async with _queue(run_side) as queue:
        return await load(lambda one: queue.outputs(one.snapshot, [one.row]), asked, clients)


@contextlib.asynccontextmanager
async def _queue(run_side: Callable[[Any, Sequence[TokenRow]], Any]) -> AsyncIterator[BatchQueue[TokenRow, Any, Any]]:
    """The server's queue with the settings that it has by default."""
    with ThreadPoolExecutor(1) as body:
        queue: BatchQueue[TokenRow, Any, Any] = BatchQueue(
            run_side, queue_limits(ServingSettings()), body, lambda _: None
        )
        work = asyncio.create_task(queue.work())
        try:
            yield queue
        finally:
            work.cancel()


def run_separate(model: Separate, rows: Sequence[TokenRow]) -> list[Any]:
    """Texts of one language through the model that knows it, padded to the longest."""
    longest_T = max(map(len, rows))
    ids_BT = np.ones((len(rows), longest_T), np.int64)
    mask_BT = np.zeros_like(ids_BT)
    for place, row in enumerate(rows):
        ids_BT[place, : len(row)] = row.ids
        mask_BT[place, : len(row)] = 1
    return list(model.session.run(None, {"input_ids": ids_BT, "attention_mask": mask_BT})[0])


def middle(loads: Sequence[Load]) -> Load:
    """Medians over rounds."""
    return Load(*(statistics.median(values) for values in zip(*loads, strict=True)))


def best(loads: dict[str, dict[str, dict[str, float]]], side: str, bound_ms: float) -> float | None:
    """Texts a second that a side comes to, with 95% of answers within a bound; None if none of its loads is."""
    kept = [one[side]["texts_per_s"] for one in loads.values() if one[side]["p95_ms"] <= bound_ms]
    return max(kept, default=None)

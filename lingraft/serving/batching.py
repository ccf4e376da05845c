"""Batches of the texts that wait for one body, across languages and requests.

- Rows of similar length share a batch, so that little is spent on padding. The oldest row leads its batch.
- A long request enters the queue in parts, so that it does not hold up a short one.
- All rows of a batch have the same snapshot of a bundle: replacing a language affects only later batches.
"""

import asyncio
import time
from collections.abc import Callable, Sequence, Sized
from concurrent.futures import Executor
from typing import Any, NamedTuple

from lingraft.errors import OverloadedError

_SHORT_TOKENS = 16
"""Shortest length that counts; shorter rows cost the same, so that padding between them is ignored."""
_PART_BATCHES = 2
"""Full batches that a long request may have in the queue at once."""
_POLL_S = 0.001


class QueueLimits(NamedTuple):
    """Limits of a batch and of the queue."""

    batch_texts: int
    batch_tokens: int
    wait_s: float
    waiting_texts: int
    min_fill: float
    """Smallest share of a batch's positions that hold tokens; a row that would reduce it waits for another batch."""


class _WaitingRow(NamedTuple):
    row: Any
    snapshot: Any
    since_s: float
    future: asyncio.Future[Any]

    @property
    def cost(self) -> int:
        return max(len(self.row), _SHORT_TOKENS)


class BatchQueue:
    """Queue of one body's rows, whose lengths are their numbers of tokens."""

    def __init__(
        self,
        run: Callable[[Any, Sequence[Any]], Sequence[Any]],
        limits: QueueLimits,
        executor: Executor,
        observe: Callable[[Sequence[Any], float], None],
    ) -> None:
        """Create an empty queue: `run` computes a snapshot's batch, `observe` is given it and the seconds it took."""
        self._run = run
        self._limits = limits
        self._executor = executor
        self._observe = observe
        self._waiting: list[_WaitingRow] = []
        self._worker: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def outputs(self, snapshot: object, rows: Sequence[Sized]) -> list[Any]:
        """Return the outputs of one request's rows; rows of different snapshots share no batch."""
        most = self._limits.waiting_texts
        size = min(_PART_BATCHES * self._limits.batch_texts, most)
        if len(self._waiting) + min(len(rows), size) > most:
            raise OverloadedError(f"{len(self._waiting)} texts wait already, and at most {most} may. Ask again later.")
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
        found: dict[int, Any] = {}
        for start in range(0, len(order), size):
            places = order[start : start + size]
            found |= zip(places, await self._part(snapshot, [rows[place] for place in places]), strict=True)
        return [found[place] for place in range(len(rows))]

    async def _part(self, snapshot: object, rows: Sequence[Sized]) -> list[Any]:
        loop, now_s = asyncio.get_running_loop(), time.monotonic()
        part = [_WaitingRow(row, snapshot, now_s, loop.create_future()) for row in rows]
        self._waiting += part
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        try:
            return await asyncio.gather(*(each.future for each in part))
        finally:
            for each in part:
                each.future.cancel()
            if any(each.future.cancelled() for each in part):
                self._waiting = [each for each in self._waiting if not each.future.done()]

    async def _work(self) -> None:
        """Compute batches until no row waits."""
        while self._waiting:
            wait_s = self._waiting[0].since_s + self._limits.wait_s - time.monotonic()
            if wait_s > 0 and len(self._waiting) < self._limits.batch_texts:
                await asyncio.sleep(min(wait_s, _POLL_S))
            else:
                await self._compute(self._next_batch())

    def _next_batch(self) -> list[_WaitingRow]:
        """Remove the oldest row from the queue, with the rows whose lengths are the most similar to its own."""
        first, *others = self._waiting
        others.sort(key=lambda each: abs(each.cost - first.cost))
        batch, longest, tokens = [first], first.cost, first.cost
        for each in others:
            places = (len(batch) + 1) * max(longest, each.cost)
            fits = len(batch) < self._limits.batch_texts and places <= self._limits.batch_tokens
            if fits and each.snapshot is first.snapshot and tokens + each.cost >= self._limits.min_fill * places:
                batch.append(each)
                longest, tokens = max(longest, each.cost), tokens + each.cost
        taken = {id(each) for each in batch}
        self._waiting = [each for each in self._waiting if id(each) not in taken]
        return batch

    async def _compute(self, batch: list[_WaitingRow]) -> None:
        rows, began_s = [each.row for each in batch], time.monotonic()
        run = asyncio.get_running_loop().run_in_executor(self._executor, self._run, batch[0].snapshot, rows)
        found: Any = (await asyncio.gather(run, return_exceptions=True))[0]
        if not isinstance(found, BaseException):
            self._observe(rows, time.monotonic() - began_s)
        for place, each in enumerate(batch):
            if each.future.done():
                continue
            if isinstance(found, BaseException):  # any failure of the body is passed on to the requests of the batch
                each.future.set_exception(found)
            else:
                each.future.set_result(found[place])

"""The queue of texts that wait for one body; it forms batches across languages and requests.

- Rows of similar length share a batch, so that little is spent on padding.
- Scheduling is fair between requests: start-time fair queueing (Goyal, Vin, Cheng 1996) with a row as the unit. A
  request's first row is due at once, its second after the first rows of all other requests, so that a long request does
  not delay a short one. A round ends when every waiting request has had its turn, as in fair queueing by Demers, Keshav
  and Shenker (1989); otherwise a stream of short requests could delay a long one forever.
- The queue is bounded: rows that do not fit are refused with the time after which to retry. Rows of a cancelled request
  are removed.
- All rows of a batch have the same snapshot of a bundle: replacing a language affects only later batches.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence, Sized
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from lingraft.errors import OverloadedError

MIN_FILL = 0.75
"""Default for the smallest share of a batch's positions that hold tokens; a row that would reduce it further waits for
another batch."""
_SHORT_TOKENS = 16
"""Shortest length that counts; shorter rows cost the same, so that padding between them is ignored."""
_LONGEST_RETRY_S = 60
_LAST_BATCH_WEIGHT = 0.2
"""Weight of the last batch in the moving average of the body's speed."""


QueueRow = TypeVar("QueueRow", bound=Sized)
"""Type of a row, whose length is its number of tokens."""
Snapshot = TypeVar("Snapshot")
Output = TypeVar("Output")


class QueueLimits(NamedTuple):
    """Limits of a batch and of the queue."""

    batch_texts: int
    batch_tokens: int
    wait_s: float
    waiting_texts: int
    min_fill: float = MIN_FILL


class BatchStats(NamedTuple):
    """Size and duration of a batch that the body has computed."""

    texts: int
    tokens: int
    places: int
    """Number of positions: tokens and padding."""
    elapsed_s: float


@dataclass(eq=False)
class _QueuedRow(Generic[QueueRow, Snapshot, Output]):
    row: QueueRow
    snapshot: Snapshot
    due: float
    """Start tag of fair queueing: the round in which the row is due."""
    number: int
    """Position in the order of arrival."""
    request: int
    """Number of the request's first row."""
    since_s: float
    future: asyncio.Future[Output]

    @property
    def cost(self) -> int:
        return max(len(self.row), _SHORT_TOKENS)


class BatchQueue(Generic[QueueRow, Snapshot, Output]):
    """Queue of one bundle's rows; it belongs to the event loop in which `work` runs."""

    def __init__(
        self,
        run: Callable[[Snapshot, Sequence[QueueRow]], Sequence[Output]],
        limits: QueueLimits,
        executor: Executor,
        watch: Callable[[BatchStats], None],
    ) -> None:
        """Create an empty queue."""
        self._run = run
        self._limits = limits
        self._executor = executor
        self._watch = watch
        self._waiting: list[_QueuedRow[QueueRow, Snapshot, Output]] = []
        self._changed = asyncio.Event()
        self._round = 0.0
        self._arrived = 0
        self._texts_per_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    async def outputs(self, snapshot: Snapshot, rows: Sequence[QueueRow]) -> list[Output]:
        """Enqueue the rows of one request, and return their outputs; rows of different snapshots share no batch.

        Raises:
            OverloadedError: the rows do not fit into the queue now.
        """
        if len(self._waiting) + len(rows) > self._limits.waiting_texts:
            raise self._overloaded()
        loop = asyncio.get_running_loop()
        now_s = time.monotonic()
        queued = [
            _QueuedRow(
                row=row,
                snapshot=snapshot,
                due=self._round + place,
                number=self._arrived + place,
                request=self._arrived,
                since_s=now_s,
                future=loop.create_future(),
            )
            for place, row in enumerate(rows)
        ]
        self._arrived += len(queued)
        self._waiting += queued
        self._changed.set()
        try:
            return await asyncio.gather(*(each.future for each in queued))
        finally:
            self._remove(queued)

    async def work(self) -> None:
        """Compute batches until cancelled."""
        while True:
            await self._wait_for_batch()
            if batch := self._next_batch():
                await self._run_batch(batch)

    def _overloaded(self) -> OverloadedError:
        needed_s = len(self._waiting) / self._texts_per_s if self._texts_per_s else 1.0
        return OverloadedError(
            f"{len(self._waiting)} texts wait already, and at most {self._limits.waiting_texts} may. Ask again later.",
            min(_LONGEST_RETRY_S, max(1, math.ceil(needed_s))),
        )

    def _remove(self, queued: Sequence[_QueuedRow[QueueRow, Snapshot, Output]]) -> None:
        """Remove the waiting rows of a request that was cancelled, or of which a row failed."""
        if all(each.future.done() and not each.future.cancelled() for each in queued):
            return
        removed = set(map(id, queued))
        for each in queued:
            each.future.cancel()
        self._waiting = [each for each in self._waiting if id(each) not in removed]

    async def _wait_for_batch(self) -> None:
        """Wait until there are enough rows for a full batch, or the oldest row has waited long enough."""
        while True:
            self._changed.clear()
            if self._waiting:
                oldest_s = min(each.since_s for each in self._waiting)
                left_s = oldest_s + self._limits.wait_s - time.monotonic()
                if left_s <= 0 or len(self._waiting) >= self._limits.batch_texts:
                    return
            else:
                left_s = None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)

    def _next_batch(self) -> list[_QueuedRow[QueueRow, Snapshot, Output]]:
        """Remove the next batch from the queue: the row that is due first, and the rows of the most similar lengths."""
        first = min(self._waiting, key=lambda each: (each.due, each.number))
        others = [each for each in self._waiting if each.snapshot is first.snapshot and each is not first]
        others.sort(key=lambda each: (abs(each.cost - first.cost), each.due, each.number))
        batch = [first]
        longest = first.cost
        tokens = first.cost
        for each in others[: self._limits.batch_texts - 1]:
            places = (len(batch) + 1) * max(longest, each.cost)
            if places > self._limits.batch_tokens or tokens + each.cost < self._limits.min_fill * places:
                continue
            batch.append(each)
            longest, tokens = max(longest, each.cost), tokens + each.cost
        requests_in_batch = len({each.request for each in batch})
        requests_waiting = len({each.request for each in self._waiting})
        self._round = max(self._round + requests_in_batch / requests_waiting, first.due)
        taken = set(map(id, batch))
        self._waiting = [each for each in self._waiting if id(each) not in taken]
        return batch

    async def _run_batch(self, batch: list[_QueuedRow[QueueRow, Snapshot, Output]]) -> None:
        rows = [each.row for each in batch]
        began_s = time.monotonic()
        run = asyncio.get_running_loop().run_in_executor(self._executor, self._run, batch[0].snapshot, rows)
        try:
            found = await run
        except Exception as error:  # noqa: BLE001  any failure of the body is passed on to the requests of the batch
            for each in batch:
                if not each.future.done():
                    each.future.set_exception(error)
            return
        for each, output in zip(batch, found, strict=True):
            if not each.future.done():
                each.future.set_result(output)
        elapsed_s = time.monotonic() - began_s
        speed = len(rows) / max(elapsed_s, 1e-6)
        self._texts_per_s += (_LAST_BATCH_WEIGHT if self._texts_per_s else 1) * (speed - self._texts_per_s)
        lengths = [len(row) for row in rows]
        self._watch(BatchStats(len(rows), sum(lengths), len(rows) * max(lengths), elapsed_s))

"""The queue before one body: what waits together goes through as one batch, whatever its languages and requests.

- Rows of similar length share a batch, so that little is spent on padding.
- Fair by request: start-time fair queueing (Goyal, Vin, Cheng 1996), a row being the unit. A request's first row is
  due at once, its second after everybody else's first, so that a long request does not hold a short one up. A round
  is over when every request that waits has had its turn, as in fair queueing by Demers, Keshav and Shenker (1989);
  else short requests that go on coming would hold a long one up for ever.
- Bounded: what does not fit is refused with the time after which to come again. A cancelled request leaves.
- A batch is of one snapshot of a bundle: a language that is swapped meanwhile changes later batches only.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from lingraft.errors import OverloadedError

MIN_FILL = 0.75
"""Share of a batch's places that hold tokens, if nothing else is said; a row that would bring it below waits for
another batch."""
_SHORT_TOKENS = 16
"""Below, a row costs what one of this length does, so that padding between short rows is not minded."""
_LONGEST_RETRY_S = 60
_LAST_BATCH_WEIGHT = 0.2
"""Weight of the last batch in the moving average of the body's speed."""


class HasLength(Protocol):
    """A row: something with a number of tokens."""

    def __len__(self) -> int: ...


Row = TypeVar("Row", bound=HasLength)
Snapshot = TypeVar("Snapshot")
Output = TypeVar("Output")


class QueueLimits(NamedTuple):
    """How large a batch and the queue may be."""

    batch_texts: int
    batch_tokens: int
    wait_s: float
    waiting_texts: int
    min_fill: float = MIN_FILL


class BatchStats(NamedTuple):
    """What a queue tells of a batch that went through the body."""

    texts: int
    tokens: int
    places: int
    """Tokens and padding."""
    elapsed_s: float


@dataclass(eq=False)
class _QueuedRow(Generic[Row, Snapshot, Output]):
    row: Row
    snapshot: Snapshot
    due: float
    """Start tag of fair queueing: the round in which the row is to go."""
    number: int
    """In order of arrival."""
    request: int
    """Number of the first row of the same request."""
    since_s: float
    future: asyncio.Future[Output]

    @property
    def cost(self) -> int:
        return max(len(self.row), _SHORT_TOKENS)


class BatchQueue(Generic[Row, Snapshot, Output]):
    """One task's rows; belongs to the event loop in which `work` runs."""

    def __init__(
        self,
        run: Callable[[Snapshot, Sequence[Row]], Sequence[Output]],
        bounds: QueueLimits,
        executor: Executor,
        watch: Callable[[BatchStats], None],
    ) -> None:
        """Make an empty queue.

        Args:
            run: puts one batch through the body, in a thread of the executor, and returns one output a row.
            bounds: of batches and of the queue.
            executor: its threads are shared by all queues, so that bodies do not take the cores from one another.
            watch: is told of every batch, in the event loop.
        """
        self._run = run
        self._bounds = bounds
        self._executor = executor
        self._watch = watch
        self._waiting: list[_QueuedRow[Row, Snapshot, Output]] = []
        self._changed = asyncio.Event()
        self._round = 0.0
        self._arrived = 0
        self._texts_per_s = 0.0

    def __len__(self) -> int:
        """Rows that wait; those in the body are not counted."""
        return len(self._waiting)

    async def outputs(self, snapshot: Snapshot, rows: Sequence[Row]) -> list[Output]:
        """Output of each row, once all of them went through the body.

        Args:
            snapshot: the rows' bundle; rows of different ones never share a batch.
            rows: of one request.

        Raises:
            OverloadedError: so many rows do not fit into the queue now.
        """
        self._require_room(len(rows))
        loop = asyncio.get_running_loop()
        now_s = time.monotonic()
        mine = [
            _QueuedRow(
                row, snapshot, self._round + place, self._arrived + place, self._arrived, now_s, loop.create_future()
            )
            for place, row in enumerate(rows)
        ]
        self._arrived += len(mine)
        self._waiting += mine
        self._changed.set()
        try:
            return await asyncio.gather(*(each.future for each in mine))
        finally:
            self._remove(mine)

    async def work(self) -> None:
        """Put batches through the body until cancelled."""
        while True:
            await self._wait_for_batch()
            if batch := self._next_batch():
                await self._run_batch(batch)

    def _require_room(self, rows: int) -> None:
        if len(self._waiting) + rows <= self._bounds.waiting_texts:
            return
        needed_s = len(self._waiting) / self._texts_per_s if self._texts_per_s else 1.0
        raise OverloadedError(
            f"{len(self._waiting)} texts wait already, and at most {self._bounds.waiting_texts} may. Ask again later.",
            min(_LONGEST_RETRY_S, max(1, math.ceil(needed_s))),
        )

    def _remove(self, mine: Sequence[_QueuedRow[Row, Snapshot, Output]]) -> None:
        """Of a request that was cancelled, or of which a row failed, nothing else is to be computed."""
        if all(each.future.done() and not each.future.cancelled() for each in mine):
            return
        gone = set(map(id, mine))
        for each in mine:
            each.future.cancel()
        self._waiting = [each for each in self._waiting if id(each) not in gone]

    async def _wait_for_batch(self) -> None:
        """Wait until there is a batch: a full one, or one whose oldest row has waited long enough."""
        while True:
            self._changed.clear()
            if self._waiting:
                oldest_s = min(each.since_s for each in self._waiting)
                left_s = oldest_s + self._bounds.wait_s - time.monotonic()
                if left_s <= 0 or len(self._waiting) >= self._bounds.batch_texts:
                    return
            else:
                left_s = None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)

    def _next_batch(self) -> list[_QueuedRow[Row, Snapshot, Output]]:
        """The row that is due first, and those that fit to it best."""
        first = min(self._waiting, key=lambda each: (each.due, each.number))
        others = [each for each in self._waiting if each.snapshot is first.snapshot and each is not first]
        others.sort(key=lambda each: (abs(each.cost - first.cost), each.due, each.number))
        batch = [first]
        longest = first.cost
        tokens = first.cost
        for each in others[: self._bounds.batch_texts - 1]:
            places = (len(batch) + 1) * max(longest, each.cost)
            if places > self._bounds.batch_tokens or tokens + each.cost < self._bounds.min_fill * places:
                continue
            batch.append(each)
            longest, tokens = max(longest, each.cost), tokens + each.cost
        in_turn, waiting = (len({each.request for each in rows}) for rows in (batch, self._waiting))
        self._round = max(self._round + in_turn / waiting, first.due)
        taken = set(map(id, batch))
        self._waiting = [each for each in self._waiting if id(each) not in taken]
        return batch

    async def _run_batch(self, batch: list[_QueuedRow[Row, Snapshot, Output]]) -> None:
        rows = [each.row for each in batch]
        began_s = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._executor, self._run, batch[0].snapshot, rows)
        except Exception as error:  # noqa: BLE001  whatever a body fails with, the batch's requests are to hear of it
            for each in batch:
                if not each.future.done():
                    each.future.set_exception(error)
            return
        for each, output in zip(batch, found, strict=True):
            if not each.future.done():
                each.future.set_result(output)
        self._record_batch(rows, time.monotonic() - began_s)

    def _record_batch(self, rows: Sequence[Row], elapsed_s: float) -> None:
        speed = len(rows) / max(elapsed_s, 1e-6)
        self._texts_per_s = (
            speed if not self._texts_per_s else self._texts_per_s + _LAST_BATCH_WEIGHT * (speed - self._texts_per_s)
        )
        lengths = [len(row) for row in rows]
        self._watch(BatchStats(len(rows), sum(lengths), len(rows) * max(lengths), elapsed_s))

"""A queue of training metrics for a server that may be down: training never waits for the server."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from lingraft.console import say
from lingraft.errors import TrackingError
from lingraft.retry import backoff

LIMIT = 1 << 17
"""Largest number of points in the queue; they take about 40 MB."""

Point = TypeVar("Point")


@dataclass(frozen=True)
class PendingMetrics(Generic[Point]):
    """Points that the server has not confirmed."""

    points: Sequence[Point]
    """Points in the order in which they were added; the batch sent last may have arrived without a confirmation."""
    dropped: int
    """Number of points that were added to a full queue and dropped; all are later than `points`."""
    error: TrackingError | None
    """Last error of the server; None if there was none."""

    @property
    def count(self) -> int:
        """Number of points that may be missing on the server."""
        return len(self.points) + self.dropped


class MetricsQueue(Generic[Point]):
    """A bounded queue whose thread sends the points in batches, in order, and repeats each batch until it arrives."""

    def __init__(self, send: Callable[[Sequence[Point]], None], batch_points: int, limit: int = LIMIT) -> None:
        """Create the queue; its thread starts with the first point.

        Args:
            send: sends a batch, and raises TrackingError where the batch may not have arrived. The same batch is then
                sent again, so a point that arrives twice must count once.
        """
        self._send = send
        self._batch_points = batch_points
        self._limit = limit
        self._waiting: deque[Point] = deque()
        self._dropped = 0
        self._error: TrackingError | None = None
        self._closing = False
        self._ends_pause = False
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._send_batches, name="lingraft-tracking", daemon=True)

    def add(self, point: Point) -> None:
        """Add a point without waiting for the server."""
        with self._changed:
            if len(self._waiting) < self._limit:
                self._waiting.append(point)
            else:
                self._dropped += 1
            if not self._thread.ident:
                self._thread.start()
            self._changed.notify_all()

    def close(self, within_s: float) -> PendingMetrics[Point]:
        """Send the rest within a limited time, and return what is left; a server that refuses ends the wait."""
        with self._changed:
            self._closing = self._ends_pause = True
            self._changed.notify_all()
        if self._thread.ident:
            self._thread.join(within_s)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            return PendingMetrics(list(self._waiting), self._dropped, self._error)

    def _send_batches(self) -> None:
        pauses = backoff()
        while batch := self._next_batch():
            try:
                self._send(batch)
            except TrackingError as error:
                with self._changed:
                    if not self._error:
                        say(f"{error} Training goes on; {len(self._waiting)} points of its curve wait to be sent.")
                    self._error = error
                    if self._is_closed or (self._closing and not error.heals):
                        return
                    self._changed.wait_for(lambda: self._is_closed or self._ends_pause, next(pauses))
                    if self._ends_pause:
                        self._ends_pause = False
                        pauses = backoff()
            else:
                self._mark_sent(len(batch))
                pauses = backoff()

    def _next_batch(self) -> list[Point]:
        """Wait for points and return the next batch; an empty one when the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return [] if self._is_closed else [*islice(self._waiting, self._batch_points)]

    def _mark_sent(self, count: int) -> None:
        with self._changed:
            for _ in range(count):
                self._waiting.popleft()
            if self._error:
                say(f"Tracking answers again; {len(self._waiting)} points of the learning curve are still to be sent.")
            self._error = None

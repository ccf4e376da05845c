"""Seconds of work, without those of pauses."""

import contextlib
import time
from collections.abc import Iterator


class Stopwatch:
    """Runs from the beginning."""

    def __init__(self, elapsed_s: float = 0.0) -> None:
        """Begin, after `elapsed_s` seconds of earlier work."""
        self._before_s, self._started = elapsed_s, time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        """Seconds so far."""
        return self._before_s + time.perf_counter() - self._started

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count what is done meanwhile."""
        self._before_s = self.elapsed_s
        try:
            yield
        finally:
            self._started = time.perf_counter()

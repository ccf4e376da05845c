"""One side of a comparison, as the process that compares sees it."""

import json
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import NamedTuple

from benchmarks.speed.cells import Cell
from benchmarks.speed.settings import Settings

_TO_END_S = 60.0
"""Seconds that a side may take to end after its last order."""


class Timed(NamedTuple):
    """Some steps of one side."""

    step_s: float
    cpu_s: float
    """CPU seconds of a step, summed over cores: other programs on the machine disturb it less than the clock."""
    peak_bytes: int
    waiting_s: float | None
    """Seconds of a step spent waiting for a batch that was not made before the first of them."""


class SideError(RuntimeError):
    """A side ended before it was told to."""


class Side(AbstractContextManager["Side"]):
    """A running side; it trains when told to, and waits otherwise."""

    def __init__(self, cell: Cell, settings: Settings | None = None) -> None:
        """Start it.

        Args:
            cell: cell that it trains.
            settings: the peer's; ours if absent.
        """
        asked = {"cell": cell.plain(), "settings": settings and settings.plain()}
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the side
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.speed.serve", json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            bufsize=1,
            env=(settings or Settings()).environment(),
        )

    def train(self, steps: int) -> Timed:
        """Train some steps.

        Raises:
            SideError: it could not; the message is the end of what it wrote.
        """
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(f"{steps}\n")
        except BrokenPipeError as error:
            raise self._ended() from error
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer = json.loads(line)
        return Timed(answer["seconds"] / steps, answer["cpu_s"] / steps, answer["peak_bytes"], answer["waiting_s"])

    def stop(self) -> None:
        """Tell it that there are no more orders, and do not wait until it has ended."""
        assert self._process.stdin
        # An order that could not be given is still to be written; the error of the side that ended says more.
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdout
        self.stop()
        self._wait()
        self._process.stdout.close()
        self._log.close()

    def _wait(self) -> None:
        """Wait until it has ended; what it has measured is told already, so one that hangs is killed."""
        try:
            self._process.wait(_TO_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ended(self) -> SideError:
        self._wait()
        self._log.seek(0)
        return SideError(f"ended with {self._process.returncode}: {self._log.read()[-2000:]}")

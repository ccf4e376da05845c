"""Watch on what the server takes, second by second, and what others take of the cores that it shares with them."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.process_tree import held, tree

_TICKS_A_S = os.sysconf("SC_CLK_TCK")
_EVERY_S = 1.0


class Sample(NamedTuple):
    """A second of the server."""

    at_s: float
    pss_bytes: int
    rss_bytes: int
    own_bytes: int
    """Memory of no file: what the program itself has allocated."""
    descriptors: int
    """Open files, mapped ones among them."""
    sockets: int
    threads: int


class Clock(NamedTuple):
    """Processor time until now, in seconds."""

    at_s: float
    server_s: float
    soak_s: float
    """CPU seconds of all processes of the soak, the server among them."""
    busy_s: float
    """CPU seconds on the cores that the soak may use, by whomever."""


class Watch:
    """A thread that looks at a process, and calls somebody once in a while."""

    def __init__(self, process: int, tell: Callable[[], None], tell_every_s: float) -> None:
        self.samples: list[Sample] = []
        self._process, self._tell, self._tell_every_s = process, tell, tell_every_s
        self._over = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While the body runs."""
        thread = threading.Thread(target=self._look)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _look(self) -> None:
        told_s = time.monotonic()
        while not self._over.wait(_EVERY_S):
            self.samples.append(sample(self._process))
            if time.monotonic() - told_s >= self._tell_every_s:
                told_s = time.monotonic()
                self._tell()


def sample(process: int) -> Sample:
    """A process as it is now."""
    memory, folder = held(process), Path("/proc") / str(process)
    targets = [target for each in (folder / "fd").iterdir() if (target := _target(each))]
    sockets = sum(target.startswith("socket:") for target in targets)
    threads = len([*(folder / "task").iterdir()])
    return Sample(
        at_s=time.monotonic(),
        pss_bytes=memory["Pss"],
        rss_bytes=memory["Rss"],
        own_bytes=memory["Anonymous"],
        descriptors=len(targets) - sockets,
        sockets=sockets,
        threads=threads,
    )


def _target(descriptor: Path) -> str | None:
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:  # it has been closed meanwhile
        return None


def clock(server: int) -> Clock:
    """Processor time, by now, of the server, of this process and all that came from it, and of everybody."""
    return Clock(time.monotonic(), _spent_s(server), sum(map(_spent_s, tree(os.getpid()))), _busy_s())


def taken_by_others(clocks: Sequence[Clock]) -> list[float]:
    """Share of the soak's cores that others had, between each two readings."""
    found = []
    for one, other in pairwise(clocks):
        there_s = (other.at_s - one.at_s) * len(os.sched_getaffinity(0))
        others_s = other.busy_s - one.busy_s - (other.soak_s - one.soak_s)
        found.append(min(1.0, max(0.0, others_s / there_s)))
    return found


def _spent_s(process: int) -> float:
    """Return CPU seconds of a process and of those of its children that have ended."""
    try:
        fields = (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS_A_S


def _busy_s() -> float:
    cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    found = [list(map(int, fields[1:9])) for fields in lines if fields[0] in cores]
    return sum(sum(ticks) - ticks[3] - ticks[4] for ticks in found) / _TICKS_A_S

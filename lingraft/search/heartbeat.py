"""Who works at a trial, and whether it still lives.

On the same machine that is seen at once; elsewhere a worker is lost when its trial shows no sign of life for a while,
by the watcher's own clock, since clocks of machines differ.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path

_STARTED = 19
"""Place of a process' start in /proc/PID/stat, counted from behind its name."""


def process_identity() -> list[str]:
    """This process among those of all machines: host, space of process numbers, number, and start."""
    return [*_host_and_namespace(), str(os.getpid()), _start_time(os.getpid()) or ""]


def has_exited(mark: object) -> bool:
    """Whether the process of a mark was one of this machine, and has ended."""
    if not isinstance(mark, list) or tuple(mark[:2]) != _host_and_namespace():
        return False
    return _start_time(int(mark[2])) != mark[3]


def _host_and_namespace() -> tuple[str, str]:
    try:
        return socket.gethostname(), str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return socket.gethostname(), f"unknown to {os.getpid()}"


def _start_time(process: int) -> str | None:
    """When a process began, in the kernel's ticks; None if there is none, or none that can be seen."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state == "Z" else rest[_STARTED - 1]


@contextlib.contextmanager
def heartbeat(beat: Callable[[int], None], every_s: float) -> Iterator[None]:
    """Give a sign of life every so many seconds, from a thread of its own, with a number that rises."""
    ended = threading.Event()

    def beat_on() -> None:
        number = 0
        while not ended.wait(every_s):
            number += 1
            beat(number)

    thread = threading.Thread(target=beat_on, name="sign of life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class LivenessMonitor:
    """For how long each of many signs has not changed, as far as it was looked at."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without any sign.

        Args:
            clock: seconds from any moment on.
        """
        self._clock = clock
        self._since: dict[Hashable, tuple[object, float]] = {}

    def unchanged_s(self, name: Hashable, sign: object) -> float:
        """Seconds since a sign was first seen to be what it is."""
        before, since = self._since.get(name, (None, 0.0))
        if before != sign or name not in self._since:
            since = self._clock()
        self._since[name] = (sign, since)
        return self._clock() - since

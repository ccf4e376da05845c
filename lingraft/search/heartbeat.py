"""Identity and liveness of the worker that trains a trial.

A process that ended on the same machine is detected at once. A worker on another machine counts as lost when its
heartbeat has not changed for a while by the observer's own clock, since clocks of machines differ.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path

_STARTED = 19
"""Index of the process's start time in /proc/PID/stat, counted from behind the process name."""


def process_identity() -> list[str]:
    """Return an identity of this process that is unique among all machines: host, PID namespace, PID and start time."""
    return [*_host_and_namespace(), str(os.getpid()), _start_time(os.getpid()) or ""]


def has_exited(mark: object) -> bool:
    """Return whether an identity is that of a process of this machine that has exited."""
    if not isinstance(mark, list) or tuple(mark[:2]) != _host_and_namespace():
        return False
    return _start_time(int(mark[2])) != mark[3]


def _host_and_namespace() -> tuple[str, str]:
    try:
        return socket.gethostname(), str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return socket.gethostname(), f"unknown to {os.getpid()}"


def _start_time(process: int) -> str | None:
    """Start time of a process in ticks of the kernel; None if there is no such process, or it cannot be seen."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state == "Z" else rest[_STARTED - 1]


@contextlib.contextmanager
def heartbeat(beat: Callable[[int], None], every_s: float) -> Iterator[None]:
    """Call `beat` with a rising number every so many seconds, from a thread, while the context is open."""
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
    """Seconds for which each of many heartbeats has not changed, as observed by this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without any observation.

        Args:
            clock: seconds from any moment on.
        """
        self._clock = clock
        self._since: dict[Hashable, tuple[object, float]] = {}

    def unchanged_s(self, name: Hashable, sign: object) -> float:
        """Return the seconds since this value of a heartbeat was first observed."""
        before, since = self._since.get(name, (None, 0.0))
        if before != sign or name not in self._since:
            since = self._clock()
        self._since[name] = (sign, since)
        return self._clock() - since

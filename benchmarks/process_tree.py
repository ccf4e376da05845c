"""Runs a command, and says how long it took and how much memory it and all its children took at a time."""

import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_LOOK_EVERY_S = 0.1
_PROC = Path("/proc")


class Ran(NamedTuple):
    """Cost of a command."""

    elapsed_s: float
    peak_bytes: int
    """Most memory of all its processes: their proportional set size, in which a page that several share counts once."""


class CommandError(RuntimeError):
    """A command failed; the message is what it said last."""

    def __init__(self, said: str, ran: Ran) -> None:
        super().__init__(said)
        self.ran = ran
        """What it took until then."""


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Ran:
    """Run a command to its end.

    Raises:
        CommandError: it failed.
    """
    began = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        peak = _Peak(process.pid)
        try:
            said, _ = process.communicate()
            elapsed_s = time.perf_counter() - began
        finally:
            peak.stop()
    ran = Ran(round(elapsed_s, 2), peak.seen_bytes)
    if process.returncode:
        raise CommandError(said.decode(errors="replace")[-2000:], ran)
    return ran


class _Peak:
    def __init__(self, root: int) -> None:
        self.seen_bytes = 0
        self._root, self._over = root, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            self.seen_bytes = max(self.seen_bytes, sum(held(each)["Pss"] for each in tree(self._root)))


def tree(root: int) -> Iterator[int]:
    """A process and all that came from it."""
    children = defaultdict(list)
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and (parent := _parent(folder)) is not None:
            children[parent].append(int(folder.name))
    waiting = [root]
    while waiting:
        yield (process := waiting.pop())
        waiting += children[process]


def _parent(folder: Path) -> int | None:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return None


def held(process: int) -> dict[str, int]:
    """Bytes that a process holds: all pages (`Rss`), those of no file (`Anonymous`), shared ones in part (`Pss`)."""
    found = {"Rss": 0, "Pss": 0, "Anonymous": 0}
    try:
        lines = (_PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return found
    for name, _, value in (line.partition(":") for line in lines):
        if name in found:
            found[name] = int(value.split()[0]) * 1024
    return found

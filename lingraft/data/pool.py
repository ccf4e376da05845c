"""An ordered, bounded map over processes, in which the death of a worker is an error and no hang.

Each worker is a fresh interpreter with its own socket. Nothing is forked, so the parent's threads do no harm. Nothing
is shared, so a worker that is killed in the middle of an answer leaves no lock behind. Unlike in `multiprocessing`,
the caller's `__main__` does not run again.
"""

import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from lingraft.errors import LingraftError

Item = TypeVar("Item")
Result = TypeVar("Result")

_ALONE_S = 2.0
"""Seconds of work that the caller's process does by itself: as long as workers take to start."""
_QUEUED = 2
"""Most items that a worker holds: the current one, and the next, so that it need not wait for the parent."""
_AHEAD = 4
"""Most items in flight for each worker, including results that wait for their turn."""
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from lingraft.data.pool import serve; serve(sys.argv[1])"
)


class WorkerError(LingraftError):
    """A worker process ended before its work was done."""


def available_cores() -> int:
    """Return the number of cores that this process may use, by its CPU affinity and the container's quota."""
    bound = len(os.sched_getaffinity(0))
    if not _QUOTA.is_file():
        return bound
    quota, period = _QUOTA.read_text().split()
    return bound if quota == "max" else max(1, min(bound, math.ceil(int(quota) / int(period))))


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Iterator[Result]:
    """Yield `function(item)` for each item, in the order of the items, computed by worker processes.

    Items are taken as they are needed: a few for each worker are in flight, however slowly results are consumed.
    Processes start when the work has taken two seconds in the caller's process and there is more than one item left,
    and end with the iterator. With one worker, the caller's process does everything.

    Args:
        function: a function at a module's top level, a `functools.partial` of one, or a callable object; it is
            pickled once for each worker, and may keep what it has loaded.
        items: picklable objects, best some 0.1 to 10 MB each.
        workers: number of processes; `available_cores()` if None.
    """
    count = available_cores() if workers is None else workers
    source = iter(items)
    alone_s = 0.0
    for item in source:
        if count > 1 and alone_s >= _ALONE_S:
            source = chain([item], source)
            break
        started_s = time.perf_counter()
        answer = function(item)
        alone_s += time.perf_counter() - started_s
        yield answer
    else:
        return
    first = list(islice(source, 2))
    if len(first) < 2:
        yield from map(function, first)
        return
    started: list[_PoolWorker] = []
    try:
        yield from _results(function, chain(first, source), count, started)
    finally:
        for worker in started:
            worker.end()


def _results(
    function: Callable[[Any], Any], items: Iterator[Any], size: int, workers: list["_PoolWorker"]
) -> Iterator[Any]:
    """Yield results in order; `workers` grows to `size` as there is work."""
    given = taken = 0
    done: dict[int, Any] = {}
    while True:
        room = size * _QUEUED - sum(len(worker.numbers) for worker in workers)
        for item in islice(items, min(room, size * _AHEAD - (given - taken))):
            if len(workers) < size and all(worker.numbers for worker in workers):
                workers.append(_PoolWorker(function))
            min(workers, key=lambda worker: len(worker.numbers)).give(given, item)
            given += 1
        if taken == given:
            return
        ready = wait([worker.connection for worker in workers], timeout=0 if taken in done else None)
        for worker in workers:
            if worker.connection in ready:
                number, answer = worker.answer()
                done[number] = answer
        if taken in done:
            answer = done.pop(taken)
            if isinstance(answer, _RaisedError):
                raise answer.error()
            yield answer
            taken += 1


class _RaisedError(NamedTuple):
    """A picklable copy of an error, as some LingraftErrors take other arguments than their message."""

    kind: type[LingraftError]
    arguments: tuple[Any, ...]
    state: dict[str, Any]

    @classmethod
    def of(cls, error: LingraftError) -> "_RaisedError":
        return cls(type(error), error.args, vars(error))

    def error(self) -> LingraftError:
        found = self.kind.__new__(self.kind, *self.arguments)
        vars(found).update(self.state)
        return found


class _PoolWorker:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.connection, theirs = Pipe()
        self.numbers: deque[int] = deque()
        """Numbers of the items that it holds, in the order of its results."""
        with theirs:
            command = [sys.executable, "-c", _START, str(theirs.fileno()), json.dumps(sys.path)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        self._send(function)

    def give(self, number: int, item: Any) -> None:
        self.numbers.append(number)
        self._send(item)

    def answer(self) -> tuple[int, Any]:
        try:
            return self.numbers.popleft(), self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._death() from error

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def _send(self, what: Any) -> None:
        try:
            self.connection.send(what)
        except OSError as error:
            raise self._death() from error

    def _death(self) -> WorkerError:
        code = self.process.wait()
        reason = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return WorkerError(
            f"worker process {self.process.pid} {reason} before its work was done. If nobody stopped it, memory ran "
            "out, or standard error says why. Free memory or use fewer workers, and start again."
        )


def serve(descriptor: str) -> None:
    """Run a worker: apply the function to items until the parent closes the socket of this file descriptor."""
    # Ctrl-C reaches the whole group; the parent decides, and its end is the end of the connection.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(int(descriptor))
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    # A thread receives beside the work, or parent and worker could each wait for the other to read.
    threading.excepthook = _exit_process
    threading.Thread(target=_receive, args=(connection, messages), daemon=True).start()
    function = messages.get()
    while True:
        answer = _apply(function, messages.get())
        # Where nobody reads any more, the other thread ends this process.
        with contextlib.suppress(ConnectionError):
            connection.send(answer)


def _receive(connection: Connection, messages: "queue.SimpleQueue[Any]") -> None:
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            messages.put(connection.recv())
    os._exit(0)


def _exit_process(defect: threading.ExceptHookArgs) -> None:
    """End the process with the thread that failed, as the main thread would wait for its messages for ever."""
    threading.__excepthook__(defect)
    os._exit(1)


def _apply(function: Callable[[Any], Any], item: Any) -> Any:
    try:
        return function(item)
    except LingraftError as error:
        return _RaisedError.of(error)

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
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from lingraft.errors import LingraftError

Item = TypeVar("Item")
Result = TypeVar("Result")

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
    Processes start when there is a second item, and end with the iterator. With one worker, the caller's process
    does everything.

    Args:
        function: a function at a module's top level, a `functools.partial` of one, or a callable object; it is
            pickled once for each worker, and may keep what it has loaded.
        items: picklable objects, best some 0.1 to 10 MB each.
        workers: number of processes; `available_cores()` if None.

    Raises:
        WorkerError: a worker ended before its work was done: killed, out of memory, or by a bug, whose traceback is
            on standard error.
        LingraftError: raised by `function`, as it raised it.
    """
    count = available_cores() if workers is None else workers
    source = iter(items)
    first = list(islice(source, 2))
    if count == 1 or len(first) < 2:
        yield from map(function, chain(first, source))
    else:
        with _crew(function, count) as crew:
            yield from crew.results(chain(first, source))


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


class _Pool:
    def __init__(self, function: Callable[[Any], Any], size: int) -> None:
        self._function, self._size = function, size
        self.members: list[_PoolWorker] = []

    def results(self, items: Iterator[Any]) -> Iterator[Any]:
        given = taken = 0
        done: dict[int, Any] = {}
        while True:
            for item in islice(items, self._room(given - taken)):
                self._least_busy().give(given, item)
                given += 1
            if taken == given:
                return
            for worker in self._answering(timeout=0 if taken in done else None):
                number, answer = worker.answer()
                done[number] = answer
            if taken in done:
                yield _result(done.pop(taken))
                taken += 1

    def _room(self, on_their_way: int) -> int:
        """Return the number of items that may be handed out now."""
        free = self._size * _QUEUED - sum(len(worker.numbers) for worker in self.members)
        return min(free, self._size * _AHEAD - on_their_way)

    def _least_busy(self) -> _PoolWorker:
        if len(self.members) < self._size and all(worker.numbers for worker in self.members):
            self.members.append(_PoolWorker(self._function))
        return min(self.members, key=lambda worker: len(worker.numbers))

    def _answering(self, timeout: float | None) -> Sequence[_PoolWorker]:
        ready = wait([worker.connection for worker in self.members], timeout)
        return [worker for worker in self.members if worker.connection in ready]


@contextlib.contextmanager
def _crew(function: Callable[[Any], Any], size: int) -> Iterator[_Pool]:
    crew = _Pool(function, size)
    try:
        yield crew
    finally:
        for worker in crew.members:
            worker.end()


def _result(answer: Any) -> Any:
    if isinstance(answer, _RaisedError):
        raise answer.error()
    return answer


def serve(descriptor: str) -> None:
    """Run a worker: apply the function to items until the parent closes the connection.

    Args:
        descriptor: file descriptor of the socket to the parent.
    """
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

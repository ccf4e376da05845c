"""Messages and progress of long work, on a terminal and in a log."""

import contextlib
import shlex
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from lingraft import ranks

Item = TypeVar("Item")

_LINE_EVERY_S = 5.0
_MEANINGFUL_S = 1.0
"""Seconds after which the rate of some work says something about the rest of it."""
_said_at_s = float("-inf")
"""Time of the last line: short works in a row are not to be silent together for longer than a long one."""
_worked_at_s = float("-inf")
"""Time of the last item of such work: a work after a pause begins a new row."""


def say(message: str) -> None:
    """Print a line of plain text on standard error; of several processes that train together, rank zero does."""
    global _said_at_s
    _said_at_s = time.monotonic()
    if ranks.is_rank_zero():
        with contextlib.suppress(OSError):  # a log on a full disk must not end a training
            tqdm.write(message, file=sys.stderr)


@contextlib.contextmanager
def never_silent(title: str) -> Iterator[None]:
    """Print how long some work has taken, whenever nothing else has been printed for five seconds while it goes on."""
    began_s, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        while not ended.wait(1.0):
            if time.monotonic() - max(began_s, _said_at_s, _worked_at_s) > _LINE_EVERY_S:
                say(f"{title}: {time.monotonic() - began_s:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def command_line(*words: str | Path) -> str:
    """Return a command for people to copy, quoted for a shell; a path that looks like an option begins with `./`."""
    return shlex.join(f"./{word}" if isinstance(word, Path) and str(word)[:1] == "-" else str(word) for word in words)


def with_progress(items: Iterable[Item], title: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Pass items on and count them; a terminal gets a bar that goes when done, a log a line after five silent seconds.

    Args:
        items: items to work through.
        title: words for the work, such as "read text".
        unit: word for one item, such as "document".
        total: how many there are, where that is known; without it there is no time left to show.
    """
    terminal = sys.stderr.isatty() and ranks.is_rank_zero()
    global _said_at_s, _worked_at_s
    began_s = time.monotonic()
    if began_s - _worked_at_s > _LINE_EVERY_S:
        _said_at_s = began_s
    with tqdm(items, desc=title, unit=unit, total=total, file=sys.stderr, leave=False, disable=not terminal) as bar:
        for number, item in enumerate(bar, start=1):
            _worked_at_s = time.monotonic()
            if not terminal and _worked_at_s - _said_at_s > _LINE_EVERY_S:
                say(f"{title}: {unit} {number}{_pace(number, total, _worked_at_s - began_s)}")
            yield item


def _pace(number: int, total: int | None, elapsed_s: float) -> str:
    out_of = f"/{total}" if total else ""
    if elapsed_s < _MEANINGFUL_S:
        return out_of
    rate = number / elapsed_s
    left = f", {(total - number) / rate:.0f} s left" if total else ""
    return f"{out_of}, {f'{rate:,.0f}' if rate >= 10 else f'{rate:.1f}'} a second{left}"


_MINUTE_S = 60
_HOUR_S = 3600


@dataclass(frozen=True)
class PlannedStep:
    """A step that has not started."""

    kind: str
    """Steps of one kind take about as long as each other."""
    at_once: int = 1
    """Steps of this kind that share the machine."""


@dataclass
class RunningStep:
    """A step that has been started, and not ended."""

    kind: str
    started_s: float
    headline: str = ""
    """Number of the step and of all steps, and about how long all of them will still take."""
    ends_s: float | None = None
    """When its training will end, as it reported last."""


class TotalProgress:
    """Counts steps as they start and end, in threads if they run at once.

    A step is expected to take the mean time of the steps of its kind that have ended, else of all.
    """

    def __init__(self, planned: Iterable[PlannedStep], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock()
        self._lock = threading.Lock()
        steps = [*planned]
        self._waiting = Counter(each.kind for each in steps)
        self._at_once = {each.kind: each.at_once for each in steps}
        self._running: list[RunningStep] = []
        self.started = 0
        """Steps that have begun."""
        self.done_earlier = 0
        """Steps whose result an earlier run has made."""
        self._took_s: dict[str, list[float]] = {}
        """Seconds of each step that has ended, by kind, divided by the number that ran at once."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._began_s

    def at_once(self, kind: str) -> int:
        """Return how many steps of a kind share the machine, as planned."""
        return self._at_once.get(kind, 1)

    def start(self, kind: str, title: str) -> RunningStep:
        """Count a step as started, named by its title; one that was not planned makes the total one more."""
        with self._lock:
            self.started += 1
            if self._waiting[kind]:
                self._waiting[kind] -= 1
            step = RunningStep(kind, self._clock())
            self._running.append(step)
            left = self._left()
            total = self.started + self._waiting.total()
            step.headline = f"step {self.started} of {total}: {title}{f', {left}' if left else ''}"
            return step

    def train(self, step: RunningStep, left_s: float) -> str:
        """Take a training's own estimate; return about how long all steps still take, empty if unknown."""
        with self._lock:
            step.ends_s = self._clock() + left_s
            return self._left()

    def end(self, step: RunningStep, reused: bool = False, earlier: bool = False) -> None:
        """Count a step as ended.

        Args:
            step: step that was started.
            reused: whether its result was there already, so that its time is no estimate for others.
            earlier: whether that result is of an earlier run, rather than of another step of this one.
        """
        with self._lock:
            self._running.remove(step)
            self.done_earlier += earlier
            if not reused:
                took_s = (self._clock() - step.started_s) / self.at_once(step.kind)
                self._took_s.setdefault(step.kind, []).append(took_s)

    def left(self) -> str:
        """Estimate of the time that all steps still take, such as 'about 4 min left'; empty if unknown."""
        with self._lock:
            return self._left()

    def _left(self) -> str:
        """Compute `left`, for callers that hold the lock."""
        ended = [took_s for times in self._took_s.values() for took_s in times]
        if not ended:
            return ""

        def mean_s(kind: str) -> float:
            return statistics.fmean(self._took_s.get(kind, ended))

        left_s = sum(count * mean_s(kind) for kind, count in self._waiting.items())
        for step in self._running:
            at_once = self.at_once(step.kind)
            ends_s = step.started_s + at_once * mean_s(step.kind) if step.ends_s is None else step.ends_s
            left_s += max(0.0, ends_s - self._clock()) / at_once
        return f"about {format_duration(left_s)} left"

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show the progress of all steps in the messages of this thread's steps and trainings, while the body runs."""
        token = _SHOWN.set(self)
        try:
            yield
        finally:
            _SHOWN.reset(token)


_SHOWN: ContextVar[TotalProgress | None] = ContextVar("total progress that is shown", default=None)


def start_step(kind: str) -> tuple[str, Callable[[bool], None]]:
    """Start a step of the progress that is shown.

    Returns:
        Its headline, empty if none is shown; and what ends it, called with whether its result was there already.
    """
    total = _SHOWN.get()
    if total is None:
        return "", lambda _: None
    step = total.start(kind, kind)
    return step.headline, lambda reused: total.end(step, reused)


def remaining_note(left_s: float) -> str:
    """Return a note on how long all steps still take, for lines of a training that takes so many seconds more.

    It is empty if that is unknown, or no steps are shown.
    """
    total = _SHOWN.get()
    left = total.train(total._running[-1], left_s) if total and total._running else ""
    return f"; all steps: {left}" if left else ""


def format_duration(seconds: float) -> str:
    """A duration as rough as it is known: '40 s', '4 min', '2 h 10 min'."""
    if seconds < 1.5 * _MINUTE_S:
        return f"{max(1, round(seconds / 10)) * 10} s"
    if seconds < _HOUR_S:
        return f"{round(seconds / _MINUTE_S)} min"
    hours, minutes = divmod(round(seconds / (10 * _MINUTE_S)) * 10, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"

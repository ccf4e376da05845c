"""What long work shows: a bar with rate, loss and time left on a terminal, plain lines in a log."""

import contextlib
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from tqdm import tqdm

from lingraft import ranks
from lingraft.total_progress import shown_left

if TYPE_CHECKING:
    from lingraft.plan import Progress


Item = TypeVar("Item")

_LINE_EVERY_S = 10.0


def say(message: str) -> None:
    """One line of plain text on standard error; of several processes that train together, from the leader alone."""
    if ranks.leads():
        with contextlib.suppress(OSError):  # a log on a full disk must not end a training
            tqdm.write(message, file=sys.stderr)


def shown(points: "Iterator[Progress]", steps: int, title: str) -> "Generator[Progress, None, None]":
    """Pass a learning curve's points on, and show each; of several processes the leader does."""
    if not ranks.leads():
        yield from points
        return
    show = _bar if sys.stderr.isatty() else _lines
    yield from show(points, steps, title)


def counted(items: Iterable[Item], title: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Pass items on and count them; a terminal gets a bar that goes when done, a log a line every ten seconds.

    Args:
        items: what is worked through.
        title: what is done to them.
        unit: what one of them is.
        total: how many there are, where that is known; without it there is no time left to show.
    """
    terminal = sys.stderr.isatty() and ranks.leads()
    began = said_at = time.monotonic()
    with tqdm(items, desc=title, unit=unit, total=total, file=sys.stderr, leave=False, disable=not terminal) as bar:
        for number, item in enumerate(bar, start=1):
            if not terminal and time.monotonic() - said_at > _LINE_EVERY_S:
                said_at = time.monotonic()
                say(f"{title}: {unit} {number}{_pace(number, total, said_at - began)}")
            yield item


def _pace(number: int, total: int | None, elapsed_s: float) -> str:
    rate = number / elapsed_s
    left = f", {(total - number) / rate:.0f} s left" if total else ""
    return f"{f'/{total}' if total else ''}, {rate:,.0f} a second{left}"


def _bar(points: "Iterator[Progress]", steps: int, title: str) -> "Iterator[Progress]":
    with tqdm(total=steps, desc=title, unit="step", file=sys.stderr) as bar:
        for point in points:
            told = f"{_depth(point)}loss {point.loss:.3f}, {_rate(point)}{_all_left(point, steps)}"
            bar.set_postfix_str(told, refresh=False)
            bar.update(point.step - bar.n)
            yield point


def _lines(points: "Iterator[Progress]", steps: int, title: str) -> "Iterator[Progress]":
    said_at = float("-inf")
    for point in points:
        if time.monotonic() - said_at > _LINE_EVERY_S or point.step == steps:
            said_at = time.monotonic()
            left_s = point.elapsed_s / point.step * (steps - point.step)
            told = f"{_depth(point)}loss {point.loss:.3f}, {_rate(point)}"
            say(f"{title}: step {point.step}/{steps}, {told}, {left_s:.0f} s left{_all_left(point, steps)}")
        yield point


def _all_left(point: "Progress", steps: int) -> str:
    """About how long all steps still take of which this training is one, where it is one of several."""
    total_s = point.elapsed_s / point.step * steps
    return shown_left(total_s - point.elapsed_s, total_s)


def _depth(point: "Progress") -> str:
    return "" if point.depth is None else f"depth {point.depth}, "


def _rate(point: "Progress") -> str:
    return f"{point.tokens / point.elapsed_s:,.0f} tokens/s"

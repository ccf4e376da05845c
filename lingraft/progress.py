"""What long work shows: a bar with rate, loss and time left on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Iterator

from tqdm import tqdm

from lingraft.train import Progress

_LINE_EVERY_S = 10.0


def say(message: str) -> None:
    """One line of plain text on standard error."""
    tqdm.write(message, file=sys.stderr)


def shown(points: Iterator[Progress], steps: int, title: str) -> Iterator[Progress]:
    """Pass a learning curve's points on, and show each."""
    show = _bar if sys.stderr.isatty() else _lines
    yield from show(points, steps, title)


def _bar(points: Iterator[Progress], steps: int, title: str) -> Iterator[Progress]:
    with tqdm(total=steps, desc=title, unit="step", file=sys.stderr) as bar:
        for point in points:
            bar.set_postfix_str(f"loss {point.loss:.3f}, {_rate(point)}", refresh=False)
            bar.update(point.step - bar.n)
            yield point


def _lines(points: Iterator[Progress], steps: int, title: str) -> Iterator[Progress]:
    said_at = float("-inf")
    for point in points:
        if time.monotonic() - said_at > _LINE_EVERY_S or point.step == steps:
            said_at = time.monotonic()
            left_s = point.elapsed_s / point.step * (steps - point.step)
            say(f"{title}: step {point.step}/{steps}, loss {point.loss:.3f}, {_rate(point)}, {left_s:.0f} s left")
        yield point


def _rate(point: Progress) -> str:
    return f"{point.tokens / point.elapsed_s:,.0f} tokens/s"

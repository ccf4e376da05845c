"""What a training shows on its way: a bar with rate, loss and time left on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Generator, Iterator

from tqdm import tqdm

from lingraft import ranks
from lingraft.console import remaining_note, say
from lingraft.training.schedule import TrainingMetrics

_LINE_EVERY_S = 10.0


def show_progress(points: Iterator[TrainingMetrics], steps: int, title: str) -> Generator[TrainingMetrics, None, None]:
    """Pass a learning curve's points on, and show each; of several processes the leader does."""
    if not ranks.is_rank_zero():
        yield from points
        return
    show = _bar if sys.stderr.isatty() else _lines
    yield from show(points, steps, title)


def _bar(points: Iterator[TrainingMetrics], steps: int, title: str) -> Iterator[TrainingMetrics]:
    with tqdm(total=steps, desc=title, unit="step", file=sys.stderr) as bar:
        for point in points:
            told = f"{_depth(point)}loss {point.loss:.3f}, {_rate(point)}{_total_time_left(point, steps)}"
            bar.set_postfix_str(told, refresh=False)
            bar.update(point.step - bar.n)
            yield point


def _lines(points: Iterator[TrainingMetrics], steps: int, title: str) -> Iterator[TrainingMetrics]:
    said_at = float("-inf")
    for point in points:
        if time.monotonic() - said_at > _LINE_EVERY_S or point.step == steps:
            said_at = time.monotonic()
            left_s = point.elapsed_s / point.step * (steps - point.step)
            told = f"{_depth(point)}loss {point.loss:.3f}, {_rate(point)}"
            say(f"{title}: step {point.step}/{steps}, {told}, {left_s:.0f} s left{_total_time_left(point, steps)}")
        yield point


def _total_time_left(point: TrainingMetrics, steps: int) -> str:
    """About how long all steps still take of which this training is one, where it is one of several."""
    total_s = point.elapsed_s / point.step * steps
    return remaining_note(total_s - point.elapsed_s, total_s)


def _depth(point: TrainingMetrics) -> str:
    return "" if point.depth is None else f"depth {point.depth}, "


def _rate(point: TrainingMetrics) -> str:
    return f"{point.tokens / point.elapsed_s:,.0f} tokens/s"

"""Progress of a training: a bar with rate, loss and time left on a terminal, plain lines in a log."""

import contextlib
import sys
import time
from collections.abc import Iterator

from tqdm import tqdm

from lingraft import ranks
from lingraft.console import remaining_note, say
from lingraft.training.schedule import MetricsCallback, TrainingMetrics, ignore_metrics

_LINE_EVERY_S = 5.0


@contextlib.contextmanager
def training_progress(steps: int, title: str) -> Iterator[MetricsCallback]:
    """Yield a function that shows a point of a learning curve, in the first of several processes."""
    if not ranks.is_rank_zero():
        yield ignore_metrics
    elif sys.stderr.isatty():
        with tqdm(total=steps, desc=title, unit="step", file=sys.stderr) as bar:

            def move_bar(point: TrainingMetrics) -> None:
                bar.set_postfix_str(f"{_measured(point)}{_total_time_left(point, steps)}", refresh=False)
                bar.update(point.step - bar.n)

            yield move_bar
    else:
        said_at = float("-inf")

        def say_point(point: TrainingMetrics) -> None:
            nonlocal said_at
            if time.monotonic() - said_at > _LINE_EVERY_S or point.step == steps:
                said_at = time.monotonic()
                left_s = point.elapsed_s / point.step * (steps - point.step)
                left = f"{left_s:.0f} s left{_total_time_left(point, steps)}"
                say(f"{title}: step {point.step}/{steps}, {_measured(point)}, {left}")

        yield say_point


def _measured(point: TrainingMetrics) -> str:
    return f"loss {point.loss:.3f}, {point.tokens / point.elapsed_s:,.0f} tokens/s"


def _total_time_left(point: TrainingMetrics, steps: int) -> str:
    """Time that all steps of a command still take, where this training is one of several."""
    return remaining_note(point.elapsed_s / point.step * (steps - point.step))

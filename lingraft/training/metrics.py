"""What Prometheus can ask of a step that trains: the alerts in manifests/ are about these."""

import os
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from lingraft.console import say
from lingraft.errors import MissingExtraError

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge

    from lingraft.training.schedule import MetricsCallback, TrainingMetrics

PORT = "LINGRAFT_METRICS_PORT"
"""Environment variable: the port at which to answer; unset, nobody asks."""
LEFT_OUT = "left_out_steps_total"
HELP = {
    "point_timestamp_seconds": "When training began, or told the last point of its learning curve",
    "step": "Optimizer steps so far",
    "tokens": "Tokens so far",
    "loss": "Mean since the point before",
    LEFT_OUT: "Steps that this process has left out because they were not finite",
}
"""Of each metric, whose names begin with lingraft_training."""
_hears: Callable[[], None] | None = None
"""Is told of steps that are left out."""


def expose_metrics(stage: str, watch: "MetricsCallback") -> "MetricsCallback":
    """Tell Prometheus, too, what a training tells of itself; `watch` itself where nobody asks.

    Args:
        stage: the training's name.
        watch: is told every point as before.

    Raises:
        MissingExtraError: somebody asks, and the client of Prometheus is not installed.
    """
    if not os.environ.get(PORT):
        return watch
    gauges, left_out = _metrics()
    try:
        _serve(int(os.environ[PORT]))
    except OSError as error:
        say(f"port {os.environ[PORT]} cannot be listened at, so Prometheus hears nothing of {stage}: {error}")
        return watch
    gauges["point_timestamp_seconds"].labels(stage).set(time.time())
    on_skipped_step(left_out.labels(stage).inc)

    def tell(point: "TrainingMetrics") -> None:
        for name, value in {"step": point.step, "tokens": point.tokens, "loss": point.loss}.items():
            gauges[name].labels(stage).set(value)
        gauges["point_timestamp_seconds"].labels(stage).set(time.time())
        watch(point)

    return tell


def on_skipped_step(hears: Callable[[], None]) -> None:
    """Have somebody told of every step that this process leaves out from now on, in place of who was told before."""
    global _hears
    _hears = hears


def report_skipped_step() -> None:
    """Tell that a step was left out, as soon as that is known: the next point may be long in coming, or never come."""
    if _hears:
        _hears()


@cache
def _metrics() -> "tuple[dict[str, Gauge], Counter]":
    try:
        from prometheus_client import Counter, Gauge
    except ImportError as error:
        raise MissingExtraError("prometheus-client", "tracking") from error
    named = {name: (f"lingraft_training_{name}", text, ["stage"]) for name, text in HELP.items()}
    return {name: Gauge(*given) for name, given in named.items() if name != LEFT_OUT}, Counter(*named[LEFT_OUT])


@cache
def _serve(port: int) -> None:
    """From now on, until the process ends."""
    from prometheus_client import start_http_server

    start_http_server(port)

"""Metrics of a running training for Prometheus, which the alerts in manifests/ are about."""

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
"""Environment variable: port at which Prometheus asks; unset: nothing is served."""
SKIPPED = "left_out_steps_total"
HELP = {
    "point_timestamp_seconds": "When training began, or reported the last point of its learning curve",
    "step": "Optimizer steps so far",
    "tokens": "Tokens so far",
    "loss": "Mean since the point before",
    SKIPPED: "Steps that this process has left out because they were not finite",
}
"""Description of each metric, whose names begin with lingraft_training."""
_on_skipped: Callable[[], None] | None = None
"""Called for every skipped step."""


def expose_metrics(stage: str, watch: "MetricsCallback") -> "MetricsCallback":
    """Return a callback that passes the points of a training on and serves them to Prometheus.

    Where no port is set, it is `watch` itself.

    Raises:
        MissingExtraError: a port is set, and the client of Prometheus is not installed.
    """
    if not os.environ.get(PORT):
        return watch
    gauges, skipped = _metrics()
    try:
        _serve(int(os.environ[PORT]))
    except OSError as error:
        say(f"port {os.environ[PORT]} cannot be listened at, so Prometheus hears nothing of {stage}: {error}")
        return watch
    gauges["point_timestamp_seconds"].labels(stage).set(time.time())
    on_skipped_step(skipped.labels(stage).inc)

    def expose(point: "TrainingMetrics") -> None:
        for name, value in {"step": point.step, "tokens": point.tokens, "loss": point.loss}.items():
            gauges[name].labels(stage).set(value)
        gauges["point_timestamp_seconds"].labels(stage).set(time.time())
        watch(point)

    return expose


def on_skipped_step(callback: Callable[[], None]) -> None:
    """Set what is called for every step that this process skips from now on."""
    global _on_skipped
    _on_skipped = callback


def report_skipped_step() -> None:
    """Report a skipped step as soon as it is known: the next point may be long in coming, or never come."""
    if _on_skipped:
        _on_skipped()


@cache
def _metrics() -> "tuple[dict[str, Gauge], Counter]":
    try:
        from prometheus_client import Counter, Gauge
    except ImportError as error:
        raise MissingExtraError("prometheus-client", "tracking") from error
    gauges = {
        name: Gauge(f"lingraft_training_{name}", text, ["stage"]) for name, text in HELP.items() if name != SKIPPED
    }
    return gauges, Counter(f"lingraft_training_{SKIPPED}", HELP[SKIPPED], ["stage"])


@cache
def _serve(port: int) -> None:
    from prometheus_client import start_http_server

    start_http_server(port)

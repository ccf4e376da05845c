"""What Prometheus can ask of a step that trains: the alerts in manifests/ are about these."""

import os
import time
from functools import cache
from typing import TYPE_CHECKING

from lingraft.errors import MissingExtraError
from lingraft.progress import say

if TYPE_CHECKING:
    from prometheus_client import Gauge

    from lingraft.plan import Progress
    from lingraft.runs import Watch

PORT = "LINGRAFT_METRICS_PORT"
"""Environment variable: the port at which to answer; unset, nobody asks."""
HELP = {
    "point_timestamp_seconds": "When training began, or told the last point of its learning curve",
    "step": "Optimizer steps so far",
    "tokens": "Tokens so far",
    "loss": "Mean since the point before",
    "left_out_steps": "Steps so far that were left out because they were not finite",
}
"""Of each metric, whose names begin with lingraft_training."""


def exposed(stage: str, watch: "Watch") -> "Watch":
    """Tell Prometheus, too, what a training tells of itself; `watch` itself where nobody asks.

    Args:
        stage: the training's name.
        watch: is told every point as before.

    Raises:
        MissingExtraError: somebody asks, and the client of Prometheus is not installed.
    """
    if not os.environ.get(PORT):
        return watch
    try:
        gauges = _gauges(int(os.environ[PORT]))
    except OSError as error:
        say(f"port {os.environ[PORT]} cannot be listened at, so Prometheus hears nothing of {stage}: {error}")
        return watch
    gauges["point_timestamp_seconds"].labels(stage).set(time.time())

    def tell(point: "Progress") -> None:
        told = {"step": point.step, "tokens": point.tokens, "loss": point.loss, "left_out_steps": point.left_out_steps}
        for name, value in told.items():
            gauges[name].labels(stage).set(value)
        gauges["point_timestamp_seconds"].labels(stage).set(time.time())
        watch(point)

    return tell


@cache
def _gauges(port: int) -> dict[str, "Gauge"]:
    """Answer from now on, until the process ends."""
    try:
        from prometheus_client import Gauge, start_http_server
    except ImportError as error:
        raise MissingExtraError("prometheus-client", "tracking") from error
    start_http_server(port)
    return {name: Gauge(f"lingraft_training_{name}", text, ["stage"]) for name, text in HELP.items()}

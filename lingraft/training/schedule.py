"""The schedule of a training in steps, updates and FLOPs, and the learning curve that the training leaves."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lingraft.artifacts.artifact import Draft
from lingraft.artifacts.manifest import Cost

HISTORY_FILE = "history.jsonl"


class TrainingMetrics(NamedTuple):
    """One point of a learning curve."""

    step: int
    tokens: int
    flops: float
    elapsed_s: float
    loss: float
    """Mean over the steps since the point before, without skipped steps."""
    learning_rate: float
    left_out_steps: int = 0
    """Steps skipped so far because their loss or gradient was not finite."""

    @property
    def cost(self) -> Cost:
        """Cost of all steps so far."""
        return Cost(steps=self.step, tokens=self.tokens, flops=self.flops, elapsed_s=self.elapsed_s)


MetricsCallback = Callable[[TrainingMetrics], None]
"""Called with every point of a learning curve, for example to track it."""


def ignore_metrics(point: TrainingMetrics) -> None:
    """Ignore a point of a learning curve, which the artifact records anyway."""


def write_curve(draft: Draft, points: Iterable[TrainingMetrics]) -> None:
    """Write a learning curve into an artifact as a log; an imported model has an empty one."""
    draft.log(HISTORY_FILE, "".join(json.dumps(point._asdict()) + "\n" for point in points))


def read_curve(folder: Path) -> list[TrainingMetrics]:
    """Read the learning curve of an artifact; it is empty where nothing was trained."""
    path = folder / HISTORY_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [TrainingMetrics(**json.loads(line)) for line in lines]


@dataclass(frozen=True)
class Schedule:
    """Length and learning rate of a training, when it logs and evaluates, and the cost of a step."""

    steps: int
    learning_rate: float
    warmup_steps: int
    log_every_steps: int
    tokens_per_step: int
    flops_per_step: float
    weight_decay: float = 0.01
    """Decay of matrices; biases and norms have none."""
    clip_norm: float = 1.0
    """Largest norm of a gradient; larger ones are scaled down to it."""
    seed: int = 1
    """Seed of dropout."""
    stops: frozenset[int] = frozenset()
    """Further steps that are logged, for example because the caller saves what has been learned."""
    skipped_steps: int = 10
    """Steps that may be skipped because they are not finite before training ends in an error."""

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up to the peak, then linear decay to 0 after the last of `steps`; steps count from 1."""
        if step <= self.warmup_steps:
            return self.learning_rate * step / self.warmup_steps
        return self.learning_rate * (self.steps + 1 - step) / (self.steps + 1 - max(self.warmup_steps, 1))

    def logs_at(self, step: int) -> bool:
        """Return whether the learning curve has a point after a step."""
        return step % self.log_every_steps == 0 or step == self.steps or step in self.stops

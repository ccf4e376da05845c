"""The schedule of a training in steps, updates and FLOPs, and the learning curve that the training leaves."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lingraft.artifacts.artifact import Draft
from lingraft.artifacts.manifest import Cost
from lingraft.config.progressive import steps_until
from lingraft.errors import TrainingError

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
    dev_score: float | None = None
    left_out_steps: int = 0
    """Steps skipped so far because their loss or gradient was not finite."""
    depth: int | None = None
    """Bottom layers of the primary that the step passed through; None where all steps pass through the same."""
    dev_loss: float | None = None

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


class PhaseStart(NamedTuple):
    """Place at which a phase of a training starts, where the phase before has ended."""

    step: int = 0
    """Last step of the phase before."""
    flops: float = 0.0
    """FLOPs of all steps before."""
    place: float = 0.0
    """Updates of the schedule that have passed."""


TRAINING_START = PhaseStart()


@dataclass(frozen=True)
class Plateau:
    """Rule that ends a phase when a window of evaluations improves the dev loss by too little for its FLOPs."""

    window_looks: int
    """Evaluations from the beginning of a window to its end."""
    threshold: float
    """Share of the best window's improvement per FLOP at which the phase ends."""

    def reached(self, evaluations: Sequence[TrainingMetrics]) -> bool:
        """Return whether the last evaluation ends such a window, or one without improvement; windows may overlap."""
        rates = [
            ((before.dev_loss or 0.0) - (after.dev_loss or 0.0)) / (after.flops - before.flops)
            for before, after in zip(evaluations, evaluations[self.window_looks :], strict=False)
        ]
        return bool(rates) and rates[-1] <= max(0.0, self.threshold * max(rates))


@dataclass(frozen=True)
class Schedule:
    """Length and learning rate of a training phase, when it logs and evaluates, and the cost of a step.

    A training in phases has one schedule a phase. Together they pass once through `steps` updates of the learning rate.
    """

    steps: int
    learning_rate: float
    warmup_steps: int
    weight_decay: float
    clip_norm: float
    log_every_steps: int
    tokens_per_step: int
    flops_per_step: float
    seed: int = 1
    """Seed of dropout."""
    stops: frozenset[int] = frozenset()
    """Further steps that are logged, for example because the caller saves what has been learned."""
    skipped_steps: int = 0
    """Steps that may be skipped because they are not finite before training ends in an error."""
    judge_every_steps: int = 0
    """Steps between two dev scores; 0: none."""
    patience: int = 0
    """Dev scores without an improvement after which training ends; 0: never."""
    flop_budget: float | None = None
    """Training ends before it would take more."""
    start: PhaseStart = TRAINING_START
    stride: float = 1.0
    """Updates of the schedule that one step counts for."""
    ends_at: float | None = None
    """Updates of the schedule after which the next phase starts; None: the phase may go on to the end."""
    depth: int | None = None
    """Depth to log with every point, where it differs between phases."""
    look_every_steps: int = 0
    """Steps between two dev losses; 0: none."""
    plateau: Plateau | None = None
    """Rule by which the dev loss ends the phase."""
    is_last: bool = True

    def __post_init__(self) -> None:
        """Check that there is a step to take.

        Raises:
            TrainingError: the budget is smaller than one step.
        """
        if self.flop_budget is not None and self.last_step < 1:
            raise TrainingError(
                f"flop_budget {self.flop_budget:.3g} does not suffice for one update, which takes "
                f"{self.flops_per_step:.3g} FLOPs. Raise it, or make updates smaller."
            )

    @property
    def last_step(self) -> int:
        """Last step of the phase, unless a dev score or dev loss ends it before."""
        steps = steps_until(self.steps if self.ends_at is None else self.ends_at, self.start.place, self.stride)
        if self.flop_budget is not None:
            steps = min(steps, steps_until(self.flop_budget, self.start.flops, self.flops_per_step))
        return self.start.step + steps

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up to the peak, then linear decay to 0 after the last of `steps`; steps count from 1."""
        place = self.start_after(step).place
        if place <= self.warmup_steps:
            return self.learning_rate * place / self.warmup_steps
        return self.learning_rate * (self.steps + 1 - max(place, 1)) / (self.steps + 1 - max(self.warmup_steps, 1))

    def start_after(self, step: int) -> PhaseStart:
        """Start of a phase that follows a step of this one."""
        own = step - self.start.step
        return PhaseStart(step, self.start.flops + own * self.flops_per_step, self.start.place + own * self.stride)

    def evaluates_at(self, step: int) -> bool:
        """Return whether the dev score is computed after a step."""
        return bool(self.judge_every_steps) and (step % self.judge_every_steps == 0 or step == self.last_step)

    def evaluates_loss_at(self, step: int) -> bool:
        """Return whether the dev loss is computed after a step."""
        return bool(self.look_every_steps) and (step - self.start.step) % self.look_every_steps == 0

    def logs_at(self, step: int) -> bool:
        """Return whether the learning curve has a point after a step."""
        is_regular = step % self.log_every_steps == 0 or step == self.last_step
        return is_regular or step in self.stops or self.evaluates_at(step) or self.evaluates_loss_at(step)

    def has_plateaued(self, points: Sequence[TrainingMetrics]) -> bool:
        """Return whether the last point of a learning curve is a dev loss that ends the phase."""
        if self.plateau is None or not points or points[-1].dev_loss is None:
            return False
        # The dev loss that ended the phase before is the primary's too, and so the first one of this phase.
        return self.plateau.reached([p for p in points if p.dev_loss is not None and p.step >= self.start.step])

"""How long and how fast a stage trains, and what it tells on its way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lingraft.artifacts.artifact import Cost
from lingraft.config.progressive import steps_until
from lingraft.errors import TrainingError


class TrainingMetrics(NamedTuple):
    """One point of a learning curve."""

    step: int
    tokens: int
    flops: float
    elapsed_s: float
    loss: float
    """Mean over the steps since the point before, without those that were left out."""
    learning_rate: float
    dev_score: float | None = None
    """At steps at which training looks at it."""
    left_out_steps: int = 0
    """So far, since their loss or gradient was not finite."""
    depth: int | None = None
    """Bottom layers of the primary that the step passed through, where that changes on the way."""
    dev_loss: float | None = None
    """At steps after which training looks whether to go on deeper."""

    @property
    def cost(self) -> Cost:
        """What the steps so far took."""
        return Cost(steps=self.step, tokens=self.tokens, flops=self.flops, elapsed_s=self.elapsed_s)


MetricsCallback = Callable[[TrainingMetrics], None]
"""Is told every point of a learning curve, for example to record it."""


def ignore_metrics(point: TrainingMetrics) -> None:
    """Tell nobody: every artifact has its own history."""


class PhaseStart(NamedTuple):
    """Where a phase of a training began: where the one before it ended."""

    step: int = 0
    """The last one before."""
    flops: float = 0.0
    """Of all steps before."""
    place: float = 0.0
    """In the schedule, in its updates."""


TRAINING_START = PhaseStart()


@dataclass(frozen=True)
class Plateau:
    """When returns have diminished: a window improves the dev loss by too little for what it cost."""

    window_looks: int
    threshold: float
    """Share of the best window's improvement per FLOP."""

    def reached(self, looks: Sequence[TrainingMetrics]) -> bool:
        """Whether the last of some looks ends such a window, or one that improves nothing; windows may overlap."""
        rates = [
            ((before.dev_loss or 0.0) - (after.dev_loss or 0.0)) / (after.flops - before.flops)
            for before, after in zip(looks, looks[self.window_looks :], strict=False)
        ]
        return bool(rates) and rates[-1] <= max(0.0, self.threshold * max(rates))


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train, and what a step costs.

    A training in phases has several, one a phase; together they go once through one schedule.
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
    """What dropout draws from."""
    stops: frozenset[int] = frozenset()
    """Further steps after which the caller is told, for example to keep what has been learned."""
    skipped_steps: int = 0
    """Steps that are not finite that may be left out before training ends in an error."""
    judge_every_steps: int = 0
    """Steps between two looks at the dev score; 0: none."""
    patience: int = 0
    """Looks without a better dev score after which training ends; 0: never."""
    flop_budget: float | None = None
    """Training ends before it would take more."""
    begun: PhaseStart = TRAINING_START
    stride: float = 1.0
    """Updates of the schedule that a step counts for."""
    ends_at: float | None = None
    """Place in the schedule at which another phase follows; None: the last one."""
    depth: int | None = None
    """Told with every point, if it changes on the way."""
    look_every_steps: int = 0
    """Steps between two looks at the dev loss; 0: none."""
    plateau: Plateau | None = None
    """Where the dev loss says when a deeper phase follows."""
    is_last: bool = True
    """Whether no phase is to follow."""

    def __post_init__(self) -> None:
        """Check that there is a step to take.

        Raises:
            TrainingError: the budget is smaller than one.
        """
        if self.flop_budget is not None and self.last_step < 1:
            raise TrainingError(
                f"flop_budget {self.flop_budget:.3g} does not suffice for one update, which takes "
                f"{self.flops_per_step:.3g} FLOPs. Raise it, or make updates smaller."
            )

    @property
    def last_step(self) -> int:
        """The step that training ends with, unless the dev score ends it before."""
        end = self.steps if self.ends_at is None else self.ends_at
        left = steps_until(end, self.begun.place, self.stride)
        if self.flop_budget is not None:
            left = min(left, steps_until(self.flop_budget, self.begun.flops, self.flops_per_step))
        return self.begun.step + left

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up to the peak, then linear decay to 0 after the last of `steps`; steps count from 1."""
        place = self.begun_after(step).place
        if place <= self.warmup_steps:
            return self.learning_rate * place / self.warmup_steps
        return self.learning_rate * (self.steps + 1 - max(place, 1)) / (self.steps + 1 - max(self.warmup_steps, 1))

    def begun_after(self, step: int) -> PhaseStart:
        """Where a phase begins that follows a step of this one."""
        own = step - self.begun.step
        return PhaseStart(step, self.begun.flops + own * self.flops_per_step, self.begun.place + own * self.stride)

    def looked_at(self, step: int) -> bool:
        """Whether training looks at the dev loss after a step."""
        return bool(self.look_every_steps) and (step - self.begun.step) % self.look_every_steps == 0

    def flattened_out(self, points: Sequence[TrainingMetrics]) -> bool:
        """Whether the last point of a learning curve is a look by which a deeper phase follows."""
        if self.plateau is None or not points or points[-1].dev_loss is None:
            return False
        # The look that ended the phase before is of the same model, the primary, and so the first look of this one.
        return self.plateau.reached([p for p in points if p.dev_loss is not None and p.step >= self.begun.step])

    def judged_at(self, step: int) -> bool:
        """Whether training looks at the dev score after a step."""
        return bool(self.judge_every_steps) and (step % self.judge_every_steps == 0 or step == self.last_step)

    def told_at(self, step: int) -> bool:
        """Whether there is a point of the learning curve after a step."""
        regular = step % self.log_every_steps == 0 or step == self.last_step
        return regular or step in self.stops or self.judged_at(step) or self.looked_at(step)

    def point(
        self,
        step: int,
        elapsed_s: float,
        loss: float,
        dev_score: float | None,
        left_out_steps: int = 0,
        dev_loss: float | None = None,
    ) -> TrainingMetrics:
        """The point of the learning curve after a step."""
        tokens, flops, rate = step * self.tokens_per_step, self.begun_after(step).flops, self.learning_rate_at(step)
        return TrainingMetrics(
            step, tokens, flops, elapsed_s, loss, rate, dev_score, left_out_steps, self.depth, dev_loss
        )

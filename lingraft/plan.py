"""How long and how fast a stage trains, and what it tells on its way."""

from dataclasses import dataclass
from typing import NamedTuple

from lingraft.artifact import Cost
from lingraft.errors import TrainingError

_ROUNDING = 1e-6
"""Of a step."""


class Progress(NamedTuple):
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

    @property
    def cost(self) -> Cost:
        """What the steps so far took."""
        return Cost(steps=self.step, tokens=self.tokens, flops=self.flops, elapsed_s=self.elapsed_s)


def unwatched(point: Progress) -> None:
    """Tell nobody: every artifact has its own history."""


@dataclass(frozen=True)
class Plan:
    """How long and how fast to train, and what a step costs."""

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
        if self.flop_budget is None:
            return self.steps
        # A budget of so many steps is so many, however their sum was rounded.
        return min(self.steps, int(self.flop_budget / self.flops_per_step + _ROUNDING))

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up to the peak, then linear decay to 0 after the last of `steps`; steps count from 1."""
        if step <= self.warmup_steps:
            return self.learning_rate * step / self.warmup_steps
        return self.learning_rate * (self.steps + 1 - step) / (self.steps + 1 - max(self.warmup_steps, 1))

    def judged_at(self, step: int) -> bool:
        """Whether training looks at the dev score after a step."""
        return bool(self.judge_every_steps) and (step % self.judge_every_steps == 0 or step == self.last_step)

    def told_at(self, step: int) -> bool:
        """Whether there is a point of the learning curve after a step."""
        regular = step % self.log_every_steps == 0 or step == self.last_step
        return regular or step in self.stops or self.judged_at(step)

    def point(
        self, step: int, elapsed_s: float, loss: float, dev_score: float | None, left_out_steps: int = 0
    ) -> Progress:
        """The point of the learning curve after a step."""
        tokens, flops, rate = step * self.tokens_per_step, step * self.flops_per_step, self.learning_rate_at(step)
        return Progress(step, tokens, flops, elapsed_s, loss, rate, dev_score, left_out_steps)

"""State of a training as tensors and numbers that a checkpoint holds.

It holds no state of random numbers and no place in the data: both follow from the step alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.training.schedule import PhaseStart, Schedule, TrainingMetrics

_BEST = "best."


@dataclass
class EarlyStopping:
    """Best weights so far by a dev score, and how many dev scores were no better since."""

    score: float | None = None
    step: int = 0
    looks_since: int = 0
    """Dev scores since the best one."""
    weights: list[Tensor] = field(default_factory=list)

    def update(self, score: float, step: int, parameters: Sequence[nn.Parameter]) -> None:
        """Take a dev score into account, and copy the weights if it is the best; of equal ones the first counts."""
        self.looks_since += 1
        if self.score is None or score > self.score:
            self.score = score
            self.step = step
            self.looks_since = 0
            self.weights = [parameter.detach().clone() for parameter in parameters]

    @torch.no_grad()
    def restore(self, parameters: Sequence[nn.Parameter]) -> None:
        """Copy the best weights back; without any dev score the last weights stay."""
        for parameter, weight in zip(parameters, self.weights, strict=bool(self.weights)):
            parameter.copy_(weight)


@dataclass
class TrainingState:
    """State of a training after a step."""

    step: int = 0
    elapsed_s: float = 0.0
    points: list[TrainingMetrics] = field(default_factory=list)
    """Learning curve so far."""
    losses: list[Tensor] = field(default_factory=list)
    """Losses of the steps since the last point, scalars."""
    skipped: list[int] = field(default_factory=list)
    """Steps that were skipped because they were not finite."""
    best: EarlyStopping = field(default_factory=EarlyStopping)
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    """Weights and moments."""
    phase_starts: list[PhaseStart] = field(default_factory=list)
    """Start of each phase but the first, of a training that has several."""

    def has_ended(self, schedule: Schedule) -> bool:
        """Return whether a phase ends before its last step."""
        return self.is_stale(schedule) or schedule.has_plateaued(self.points)

    def is_stale(self, schedule: Schedule) -> bool:
        """Return whether the dev score has not risen for so long that all training ends."""
        return 0 < schedule.patience <= self.best.looks_since

    def tensors(self) -> dict[str, Tensor]:
        """Copy all tensors to the CPU, so that training may go on."""
        losses_S = torch.stack(self.losses) if self.losses else torch.empty(0)
        best = {f"{_BEST}{number:04d}": weight for number, weight in enumerate(self.best.weights)}
        every = self.optimizer | best | {"losses": losses_S}
        # From a GPU the copies go to pinned memory, several times as fast as to what may be paged; all are waited for.
        copies = {name: tensor.detach().to("cpu", copy=True, non_blocking=True) for name, tensor in every.items()}
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return copies

    def facts(self) -> dict[str, Any]:
        """Return all numbers, as JSON can hold them."""
        best = {"score": self.best.score, "step": self.best.step, "looks_since": self.best.looks_since}
        return {
            "step": self.step,
            "elapsed_s": self.elapsed_s,
            "left_out": [*self.skipped],
            "best": best,
            "points": [list(point) for point in self.points],
            "begun": [list(start) for start in self.phase_starts],
        }

    @classmethod
    def of(cls, tensors: dict[str, Tensor], facts: Mapping[str, Any]) -> "TrainingState":
        """Return the state that `tensors` and `facts` describe."""
        best = [tensors[name] for name in sorted(tensors) if name.startswith(_BEST)]
        return cls(
            step=facts["step"],
            elapsed_s=facts["elapsed_s"],
            points=[TrainingMetrics(*point) for point in facts["points"]],
            losses=list(tensors["losses"]),
            skipped=facts["left_out"],
            best=EarlyStopping(**facts["best"], weights=best),
            optimizer={name: tensor for name, tensor in tensors.items() if name[0].isdigit()},
            phase_starts=[PhaseStart(*start) for start in facts["begun"]],
        )

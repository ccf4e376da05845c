"""Where a training stands, as tensors and numbers that can be written down.

It holds no state of random numbers and no reader's place in the data: both follow from the step alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lingraft.training.early_stopping import EarlyStopping
from lingraft.training.schedule import PhaseStart, Schedule, TrainingMetrics

_BEST = "best."


@dataclass
class TrainingState:
    """Where a training stands after a step."""

    step: int = 0
    elapsed_s: float = 0.0
    points: list[TrainingMetrics] = field(default_factory=list)
    """The learning curve so far."""
    losses: list[Tensor] = field(default_factory=list)
    """Of the steps since the last point, scalars."""
    left_out: list[int] = field(default_factory=list)
    """Steps that were left out because they were not finite."""
    best: EarlyStopping = field(default_factory=EarlyStopping)
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    """Weights and moments."""
    begun: list[PhaseStart] = field(default_factory=list)
    """Where each phase but the first began, of a training that has several."""

    def ended(self, plan: Schedule) -> bool:
        """Whether training by a plan ends before its last step."""
        return self.stale(plan) or plan.flattened_out(self.points)

    def stale(self, plan: Schedule) -> bool:
        """Whether the dev score has not risen for so long that all training ends."""
        return 0 < plan.patience <= self.best.looks_since

    def tensors(self) -> dict[str, Tensor]:
        """All tensors, copied to the CPU, so that training may go on."""
        losses_S = torch.stack(self.losses) if self.losses else torch.empty(0)
        best = {f"{_BEST}{number:04d}": weight for number, weight in enumerate(self.best.weights)}
        every = self.optimizer | best | {"losses": losses_S}
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in every.items()}

    def facts(self) -> dict[str, Any]:
        """All numbers."""
        best = {"score": self.best.score, "step": self.best.step, "looks_since": self.best.looks_since}
        facts = {"step": self.step, "elapsed_s": self.elapsed_s, "left_out": [*self.left_out], "best": best}
        return facts | {"points": [list(point) for point in self.points], "begun": [list(each) for each in self.begun]}

    @classmethod
    def of(cls, tensors: dict[str, Tensor], facts: Mapping[str, Any]) -> "TrainingState":
        """The state that `tensors` and `facts` gave."""
        best = EarlyStopping(
            **facts["best"], weights=[tensors[name] for name in sorted(tensors) if name.startswith(_BEST)]
        )
        optimizer = {name: tensor for name, tensor in tensors.items() if name[0].isdigit()}
        points = [TrainingMetrics(*point) for point in facts["points"]]
        begun = [PhaseStart(*each) for each in facts.get("begun", ())]  # older checkpoints know of no phases
        losses = list(tensors["losses"])
        return cls(facts["step"], facts["elapsed_s"], points, losses, facts["left_out"], best, optimizer, begun)

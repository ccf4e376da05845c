"""State of a training as tensors and numbers that a checkpoint holds.

It holds no state of random numbers and no place in the data: both follow from the step alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lingraft.training.schedule import TrainingMetrics


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
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    """Weights and moments."""

    def tensors(self) -> dict[str, Tensor]:
        """Copy all tensors to the CPU, so that training may go on."""
        losses_S = torch.stack(self.losses) if self.losses else torch.empty(0)
        every = self.optimizer | {"losses": losses_S}
        # From a GPU the copies go to pinned memory, several times as fast as to what may be paged; all are waited for.
        copies = {name: tensor.detach().to("cpu", copy=True, non_blocking=True) for name, tensor in every.items()}
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return copies

    def facts(self) -> dict[str, Any]:
        """Return all numbers, as JSON can hold them."""
        return {
            "step": self.step,
            "elapsed_s": self.elapsed_s,
            "left_out": [*self.skipped],
            "points": [list(point) for point in self.points],
        }

    @classmethod
    def of(cls, tensors: dict[str, Tensor], facts: Mapping[str, Any]) -> "TrainingState":
        """Return the state that `tensors` and `facts` describe."""
        return cls(
            step=facts["step"],
            elapsed_s=facts["elapsed_s"],
            points=[TrainingMetrics(*point) for point in facts["points"]],
            losses=list(tensors["losses"]),
            skipped=facts["left_out"],
            optimizer={name: tensor for name, tensor in tensors.items() if name[0].isdigit()},
        )

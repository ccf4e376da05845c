"""The best weights so far by a dev score, and whether it is time to stop."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass
class EarlyStopping:
    """Of the looks that training took on its way."""

    score: float | None = None
    step: int = 0
    looks_since: int = 0
    """Looks without a better score."""
    weights: list[Tensor] = field(default_factory=list)

    def look(self, score: float, step: int, parameters: Sequence[nn.Parameter]) -> None:
        """Take a score into account, and keep the weights if it is the best; of equal ones the first."""
        self.looks_since += 1
        if self.score is None or score > self.score:
            self.score, self.step, self.looks_since = score, step, 0
            self.weights = [parameter.detach().clone() for parameter in parameters]

    def put_back(self, parameters: Sequence[nn.Parameter]) -> None:
        """Return to the best weights; without any look, the last ones stay."""
        with torch.no_grad():
            for parameter, weight in zip(parameters, self.weights, strict=bool(self.weights)):
                parameter.copy_(weight)

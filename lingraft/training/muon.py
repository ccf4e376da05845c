"""Muon (Jordan et al. 2024), as an update of many matrices at once.

torch.optim.Muon takes one matrix after the other, and computes in bfloat16, which processors without units for it
compute many times slower than fp32. A matrix that stands for several, such as a layer's query, key and value, is taken
as one.

Legend: N matrices of one shape, R rows, C columns.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

MOMENTUM = "momentum"
"""Name of a matrix's only moment."""
_DECAY = 0.95
"""Share of its momentum that a matrix keeps in a step."""
_ITERATIONS = 5
_QUINTIC = 3.4445, -4.7750, 2.0315
"""Coefficients of Jordan's iteration, which takes singular values to between 0.7 and 1.2 in five rounds."""
_ADAM_RMS = 0.2
"""Root mean square of AdamW's updates, to which Muon's are scaled (Liu et al. 2025, equation 4): one rate does for
both."""
_NORM_FLOOR = 1e-7


class Muon:
    """Momentum whose singular values are all brought to 0.7 to 1.2, for the matrices between embeddings and output."""

    def __init__(self, matrices: Sequence[nn.Parameter], weight_decay: float) -> None:
        """Create the optimizer of matrices (R, C) of any shapes."""
        self.state: dict[Tensor, dict[str, Tensor]] = {
            matrix: {MOMENTUM: torch.zeros_like(matrix)} for matrix in matrices
        }
        self._weight_decay = weight_decay
        self._by_shape: defaultdict[torch.Size, list[Tensor]] = defaultdict(list)
        for matrix in matrices:
            self._by_shape[matrix.shape].append(matrix)

    @torch.no_grad()
    def step(self, learning_rate: float, scale: Tensor, bad: Tensor) -> None:
        """Update weights and momentum, and clear the gradients.

        Args:
            learning_rate: as AdamW would have it.
            scale: number by which gradients are divided, a scalar.
            bad: whether to change nothing, a boolean scalar on the device, for which nothing waits.
        """
        for shape, matrices in self._by_shape.items():
            momentum = [self.state[matrix][MOMENTUM] for matrix in matrices]
            momentum_NRC = torch.stack(momentum)
            gradient_NRC = torch.stack([_gradient(matrix) for matrix in matrices]) / scale
            gradient_NRC = torch.where(bad, momentum_NRC, gradient_NRC)
            torch._foreach_lerp_(momentum, gradient_NRC.unbind(), 1 - _DECAY)
            update_NRC = orthogonal(gradient_NRC.lerp(torch.stack(momentum), _DECAY))
            rate = learning_rate * (~bad).float()
            update_NRC *= rate * _ADAM_RMS * max(shape) ** 0.5
            torch._foreach_mul_(matrices, 1 - rate * self._weight_decay)
            torch._foreach_sub_(matrices, [*update_NRC.unbind()])
        for matrix in self.state:
            matrix.grad = None


def orthogonal(matrices_NRC: Tensor) -> Tensor:
    """Return matrices with the same singular vectors and singular values of 0.7 to 1.2 (Newton-Schulz iteration)."""
    is_tall = matrices_NRC.shape[1] > matrices_NRC.shape[2]
    x_NRC = matrices_NRC.mT if is_tall else matrices_NRC
    if x_NRC.is_cuda:
        x_NRC = x_NRC.bfloat16()
    x_NRC = x_NRC / x_NRC.norm(dim=(1, 2), keepdim=True).clamp(min=_NORM_FLOOR)
    linear, cubic, quintic = _QUINTIC
    for _ in range(_ITERATIONS):
        gram_NRR = x_NRC @ x_NRC.mT
        polynomial_NRR = torch.baddbmm(gram_NRR, gram_NRR, gram_NRR, beta=cubic, alpha=quintic)
        x_NRC = torch.baddbmm(x_NRC, polynomial_NRR, x_NRC, beta=linear)
    return (x_NRC.mT if is_tall else x_NRC).to(matrices_NRC.dtype)


def _gradient(matrix: Tensor) -> Tensor:
    assert matrix.grad is not None
    return matrix.grad

"""AdamW that clips, and leaves out steps that are not finite, without a pass or a wait of its own."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

ADAM_BETAS, ADAM_EPS = (0.9, 0.98), 1e-6
"""RoBERTa's settings, which the paper follows."""
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_NORM_FLOOR = 1e-6


class Optimizer:
    """AdamW that decays matrices but not biases and LayerNorms."""

    def __init__(self, parameters: Sequence[nn.Parameter], weight_decay: float, clip_norm: float) -> None:
        """Say what is trained.

        Args:
            parameters: nothing else gets a gradient or state.
            weight_decay: of matrices.
            clip_norm: largest norm of all gradients together; larger ones are scaled down to it.
        """
        self.parameters, self.clip_norm = parameters, clip_norm
        groups = [
            {"params": [parameter for parameter in parameters if parameter.ndim > 1], "weight_decay": weight_decay},
            {"params": [parameter for parameter in parameters if parameter.ndim <= 1], "weight_decay": 0.0},
        ]
        # The learning rate is set before every step.
        self._adamw = torch.optim.AdamW(groups, lr=0.0, betas=ADAM_BETAS, eps=ADAM_EPS, fused=True)

    def step(self, learning_rate: float, loss: Tensor) -> Tensor:
        """Take a step and clear the gradients; returns whether it was left out, a boolean scalar on the device.

        A step whose loss or gradient is not finite changes nothing: neither weights nor moments.

        Args:
            learning_rate: of this step.
            loss: scalar.
        """
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients, foreach=True)
        bad = ~(torch.isfinite(norm) & torch.isfinite(loss))
        # The fused kernel divides gradients by `grad_scale` and does nothing where `found_inf` is 1: clipping needs no
        # pass of its own over the gradients, and nothing waits for the device to say whether they are finite.
        scale = ((norm + _NORM_FLOOR) / self.clip_norm).clamp(min=1.0)
        vars(self._adamw).update(grad_scale=scale, found_inf=bad.float())
        for group in self._adamw.param_groups:
            group["lr"] = learning_rate
        self._adamw.step()
        self._adamw.zero_grad(set_to_none=True)
        return bad

    def tensors(self) -> dict[str, Tensor]:
        """Weights and moments by name, the very tensors: copy what is to be kept."""
        found = {}
        for number, parameter in enumerate(self.parameters):
            found[f"{number:04d}.weight"] = parameter.detach()
            state = self._adamw.state[parameter]
            found |= {f"{number:04d}.{name}": state[name] for name in _MOMENTS if name in state}
        return found

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Put back weights and moments that `tensors` gave."""
        for number, parameter in enumerate(self.parameters):
            with torch.no_grad():
                parameter.copy_(tensors[f"{number:04d}.weight"])
            named = {name: tensors.get(f"{number:04d}.{name}") for name in _MOMENTS}
            self._adamw.state[parameter] = {
                name: tensor.to(parameter.device, copy=True) for name, tensor in named.items() if tensor is not None
            }

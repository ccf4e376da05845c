"""AdamW, and Adam over the rows that a batch has for some tables.

Both clip, and skip steps that are not finite; AdamW does so without waiting for the device.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lingraft.training.metrics import report_skipped_step

ADAM_BETAS, ADAM_EPS = (0.9, 0.98), 1e-6
"""RoBERTa's settings, which the paper follows."""
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_NORM_FLOOR = 1e-6


class Optimizer:
    """AdamW that decays matrices but not biases and LayerNorms, and sparse Adam for the tables given."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        weight_decay: float,
        clip_norm: float,
        sparse_tables: Sequence[nn.Parameter] = (),
    ) -> None:
        """Create the optimizer.

        Args:
            parameters: all that is trained.
            weight_decay: decay of matrices; tables that are updated by rows have none.
            clip_norm: norm of all gradients to which larger ones are scaled down.
            sparse_tables: those of which a step changes only rows that have a gradient, and their moments, as
                `torch.optim.SparseAdam` does: most of a language's rows are in no sentence of a batch.
        """
        for parameter in parameters:
            parameter.grad = None  # a step that was stopped between micro-batches leaves the sum of some
        self.parameters = parameters
        self.clip_norm = clip_norm
        self._tables = [*sparse_tables]
        self._sparse_adam = torch.optim.SparseAdam([{"params": self._tables}], lr=1.0, betas=ADAM_BETAS, eps=ADAM_EPS)
        for table in self._tables:
            # Its own count of steps is no tensor, which a checkpoint could hold.
            self._sparse_adam.state[table] = {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(table),
                "exp_avg_sq": torch.zeros_like(table),
            }
        others = [parameter for parameter in parameters if parameter not in self._sparse_adam.state]
        groups = [
            {"params": [parameter for parameter in others if parameter.ndim > 1], "weight_decay": weight_decay},
            {"params": [parameter for parameter in others if parameter.ndim <= 1], "weight_decay": 0.0},
        ]
        # The learning rate is set before every step.
        self._adamw = torch.optim.AdamW(groups, lr=0.0, betas=ADAM_BETAS, eps=ADAM_EPS, fused=True)

    def clip(self, loss: Tensor) -> Tensor:
        """Have the next step clip the gradients, and change nothing if the loss or a gradient is not finite.

        Returns:
            Whether the step will be skipped, a boolean scalar on the device.
        """
        for table in self._tables:
            table.grad = _rows(table)
        gradients = [
            gradient.values() if gradient.is_sparse else gradient
            for parameter in self.parameters
            if (gradient := parameter.grad) is not None
        ]
        norm = nn.utils.get_total_norm(gradients, foreach=True)
        bad = ~(torch.isfinite(norm) & torch.isfinite(loss))
        # The fused kernel divides gradients by `grad_scale` and does nothing where `found_inf` is 1: clipping needs no
        # pass of its own over the gradients, and nothing waits for the device to say whether they are finite.
        scale = ((norm + _NORM_FLOOR) / self.clip_norm).clamp(min=1.0)
        vars(self._adamw).update(grad_scale=scale, found_inf=bad.float())
        self._scale, self._bad = scale, bad
        return bad

    def step(self, learning_rate: float) -> None:
        """Update weights and moments, and clear the gradients."""
        for group in (*self._adamw.param_groups, *self._sparse_adam.param_groups):
            group["lr"] = learning_rate
        self._adamw.step()
        self._step_tables()
        self._adamw.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _step_tables(self) -> None:
        if self._tables and not self._bad:
            for table in self._tables:
                _rows(table).values().div_(self._scale)
            self._sparse_adam.step()
        self._sparse_adam.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """Return weights and moments by name, without a copy: the next step changes them."""
        found = {}
        for number, parameter in enumerate(self.parameters):
            found[f"{number:04d}.weight"] = parameter.detach()
            state = self._states_of(parameter)[parameter]
            found |= {f"{number:04d}.{name}": state[name] for name in _MOMENTS if name in state}
        return found

    def _states_of(self, parameter: nn.Parameter) -> dict[Tensor, Any]:
        """Return the states, by parameter, of the optimizer that updates this one."""
        return self._sparse_adam.state if parameter in self._sparse_adam.state else self._adamw.state

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Copy weights and moments back that `tensors` returned."""
        for number, parameter in enumerate(self.parameters):
            with torch.no_grad():
                parameter.copy_(tensors[f"{number:04d}.weight"])
            named = {name: tensors.get(f"{number:04d}.{name}") for name in _MOMENTS}
            self._states_of(parameter)[parameter] = {
                name: tensor.to(parameter.device, copy=True) for name, tensor in named.items() if tensor is not None
            }


def _rows(table: nn.Parameter) -> Tensor:
    """Return a table's gradient as a sparse one of the rows that have any, each once."""
    assert table.grad is not None
    return (table.grad if table.grad.is_sparse else table.grad.to_sparse(1)).coalesce()


class _SkipFlag(NamedTuple):
    step: int
    bad: Tensor
    copied: torch.cuda.Event | None


class SkippedSteps:
    """Steps that were skipped. What a device says of a step is read when the next step has been given to it."""

    def __init__(self, steps: list[int]) -> None:
        """Go on from the steps skipped so far, to which later ones are appended."""
        self.steps = steps
        self._flags: deque[_SkipFlag] = deque()

    def add(self, step: int, bad: Tensor) -> None:
        """Note whether a step is skipped, a boolean scalar on the device."""
        copied = None
        if bad.is_cuda:
            bad = bad.to("cpu", non_blocking=True)
            copied = torch.cuda.Event()
            copied.record()
        self._flags.append(_SkipFlag(step, bad, copied))

    def settle(self, waiting: int = 0) -> None:
        """Read all flags but the last `waiting`."""
        while len(self._flags) > waiting:
            flag = self._flags.popleft()
            if flag.copied:
                flag.copied.synchronize()
            if flag.bad:
                self.steps.append(flag.step)
                report_skipped_step()

"""THE loop: pretraining, adaptation and finetuning differ in loss, trainable parameters and batches only."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from lingraft.artifact import Cost
from lingraft.errors import TrainingError
from lingraft.precision import Precise

ADAM_BETAS, ADAM_EPS = (0.9, 0.98), 1e-6
"""RoBERTa's settings, which the paper follows."""


Batch = TypeVar("Batch")


class Progress(NamedTuple):
    """One point of a learning curve."""

    step: int
    tokens: int
    flops: float
    elapsed_s: float
    loss: float
    """Mean over the steps since the point before."""
    learning_rate: float

    @property
    def cost(self) -> Cost:
        """What the steps so far took."""
        return Cost(steps=self.step, tokens=self.tokens, flops=self.flops, elapsed_s=self.elapsed_s)


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
    micro_batches: int = 1
    """Batches of which the mean gradient makes a step."""
    stops: frozenset[int] = frozenset()
    """Further steps after which the caller is told, for example to keep what has been learned."""

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up to the peak, then linear decay to 0 after the last step; steps count from 1."""
        if step <= self.warmup_steps:
            return self.learning_rate * step / self.warmup_steps
        return self.learning_rate * (self.steps + 1 - step) / (self.steps + 1 - max(self.warmup_steps, 1))


def train(
    loss_of: Callable[[Batch], Tensor],
    parameters: Sequence[nn.Parameter],
    batches: Iterator[Batch],
    plan: Plan,
    precise: Precise,
) -> Iterator[Progress]:
    """Train, and yield a point of the learning curve every `log_every_steps` steps, at the stops, and after the last.

    The caller may look, evaluate or stop between points; that time does not count.

    Args:
        loss_of: the loss of a batch, a scalar.
        parameters: what is trained; nothing else gets a gradient or optimizer state.
        batches: at least `plan.steps * plan.micro_batches` of them.
        plan: length and schedule.
        precise: number format of the forward pass.

    Raises:
        TrainingError: the loss is not finite.
    """
    optimizer = _optimizer(parameters, plan)
    losses: list[Tensor] = []
    elapsed_s, started = 0.0, time.perf_counter()
    for step in range(1, plan.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = plan.learning_rate_at(step)
        for _ in range(plan.micro_batches):
            with precise():
                loss = loss_of(next(batches))
            (loss / plan.micro_batches).backward()
            losses.append(loss.detach())
        nn.utils.clip_grad_norm_(parameters, plan.clip_norm, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % plan.log_every_steps == 0 or step in plan.stops or step == plan.steps:
            mean = _finite_mean(losses, step, plan)
            elapsed_s += time.perf_counter() - started
            tokens, flops = step * plan.tokens_per_step, step * plan.flops_per_step
            yield Progress(step, tokens, flops, elapsed_s, mean, plan.learning_rate_at(step))
            losses.clear()
            started = time.perf_counter()


def _optimizer(parameters: Sequence[nn.Parameter], plan: Plan) -> torch.optim.Optimizer:
    """AdamW that decays matrices but not biases and LayerNorms."""
    matrices = [parameter for parameter in parameters if parameter.ndim > 1]
    vectors = [parameter for parameter in parameters if parameter.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": plan.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=plan.learning_rate, betas=ADAM_BETAS, eps=ADAM_EPS, fused=True)


def _finite_mean(losses: list[Tensor], step: int, plan: Plan) -> float:
    mean = float(torch.stack(losses).float().mean())
    if not torch.isfinite(torch.tensor(mean)):
        raise TrainingError(
            f"the loss is {mean} at step {step} of {plan.steps} (learning rate {plan.learning_rate_at(step):.2e}). "
            "Lower the learning rate, lengthen the warm-up, or use precision = 'fp32'."
        )
    return mean

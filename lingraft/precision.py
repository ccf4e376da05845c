"""Number format of training: bfloat16 autocast where it is faster on this machine, float32 elsewhere."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from lingraft import processes
from lingraft.config import Precision

Precise = Callable[[], AbstractContextManager[object]]
"""Opens the context in which forward passes run."""

_PROBE_S = 1.0


def device() -> torch.device:
    """This process's CUDA device if there is one, else the CPU."""
    processes.meet()
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def forked() -> AbstractContextManager[None]:
    """Give torch's generators back as they were; of GPUs only this process's own is touched."""
    own = device()
    return torch.random.fork_rng([] if own.type == "cpu" else [own])


def precise(choice: Literal["fp32", "bf16"]) -> Precise:
    """The context of a number format on this machine's device."""
    if choice == "fp32":
        return nullcontext
    return lambda: torch.autocast(device().type, dtype=torch.bfloat16)


def choose(
    wanted: Precision, loss_of: Callable[[], Tensor], parameters: list[nn.Parameter]
) -> tuple[Literal["fp32", "bf16"], str]:
    """Resolve a recipe's precision; `auto` times both formats for a second each on the very step to be trained.

    Args:
        wanted: the recipe's choice.
        loss_of: one forward pass on a sample batch.
        parameters: what will be trained; their gradients are cleared afterwards.

    Returns:
        The format, and a sentence that says why.
    """
    if wanted != "auto":
        return wanted, f"precision {wanted}, as set"
    rates = {choice: _steps_per_s(precise(choice), loss_of) for choice in ("fp32", "bf16")}
    for parameter in parameters:
        parameter.grad = None
    faster: Literal["fp32", "bf16"] = "bf16" if rates["bf16"] > rates["fp32"] else "fp32"
    measured = f"bf16 {rates['bf16']:.1f} against fp32 {rates['fp32']:.1f} forward and backward passes a second"
    return faster, f"precision {faster}: {measured} in a two-second probe"


def _steps_per_s(context: Precise, loss_of: Callable[[], Tensor]) -> float:
    def step() -> None:
        with context():
            loss = loss_of()
        loss.backward()

    step()
    _wait()
    started, steps = time.perf_counter(), 0
    while time.perf_counter() - started < _PROBE_S:
        step()
        _wait()
        steps += 1
    return steps / (time.perf_counter() - started)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()

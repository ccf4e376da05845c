"""Number format of training: bfloat16 autocast where it is faster on this machine, float32 elsewhere."""

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from lingraft.config.recipe import Precision
from lingraft.training.distributed import process_group

AutocastFactory = Callable[[], AbstractContextManager[object]]
"""Opens the context in which forward passes run."""

_PROBE_S = 2.0
"""Longest time that both formats are tried for."""
_CLEAR, _FEWEST_ROUNDS = 1.3, 3
"""How many times as fast one format must be, over so many rounds, for the probe to end before that."""


def device() -> torch.device:
    """This process's CUDA device if there is one, else the CPU."""
    process_group.init_process_group()
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def preserve_rng() -> AbstractContextManager[None]:
    """Give torch's generators back as they were; of GPUs only this process's own is touched."""
    own = device()
    return torch.random.fork_rng([] if own.type == "cpu" else [own])


def autocast(choice: Literal["fp32", "bf16"]) -> AutocastFactory:
    """The context of a number format on this machine's device."""
    if choice == "fp32":
        return nullcontext
    return lambda: torch.autocast(device().type, dtype=torch.bfloat16)


def choose_precision(
    wanted: Precision, loss_of: Callable[[], Tensor], parameters: list[nn.Parameter]
) -> tuple[Literal["fp32", "bf16"], str]:
    """Resolve a recipe's precision; `auto` times both formats on the very step to be trained.

    The probe lasts two seconds at most, and ends earlier where one format is clearly faster.

    Args:
        wanted: the recipe's choice.
        loss_of: one forward pass on a sample batch.
        parameters: what will be trained; their gradients are cleared afterwards.

    Returns:
        The format, and a sentence that says why.
    """
    if wanted != "auto":
        return wanted, f"precision {wanted}, as set"
    rates, took_s = _steps_per_s(loss_of)
    for parameter in parameters:
        parameter.grad = None
    faster: Literal["fp32", "bf16"] = "bf16" if rates["bf16"] > rates["fp32"] else "fp32"
    measured = f"bf16 {rates['bf16']:.1f} against fp32 {rates['fp32']:.1f} forward and backward passes a second"
    return faster, f"precision {faster}: {measured} in a probe of {took_s:.1f} s"


def _steps_per_s(loss_of: Callable[[], Tensor]) -> tuple[dict[Literal["fp32", "bf16"], float], float]:
    """Steps a second in each format, tried in turns, and how long that took.

    The median counts: on a busy machine single steps are held up.
    """

    def step_s(choice: Literal["fp32", "bf16"]) -> float:
        started = time.perf_counter()
        with autocast(choice)():
            loss = loss_of()
        loss.backward()
        _synchronize()
        return time.perf_counter() - started

    formats: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")
    began = time.perf_counter()
    for choice in formats:
        step_s(choice)  # the first one allocates
    rounds: list[dict[Literal["fp32", "bf16"], float]] = []
    while True:
        rounds.append({choice: step_s(choice) for choice in formats})
        medians = {choice: statistics.median(each[choice] for each in rounds) for choice in formats}
        took_s = time.perf_counter() - began
        is_clear = len(rounds) >= _FEWEST_ROUNDS and max(medians.values()) > _CLEAR * min(medians.values())
        if is_clear or took_s >= _PROBE_S:
            return {choice: 1 / median_s for choice, median_s in medians.items()}, took_s


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()

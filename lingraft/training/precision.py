"""Device and number format of training: bfloat16 autocast where it is faster on this machine, float32 elsewhere."""

import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from lingraft.config.recipe import Precision
from lingraft.console import say
from lingraft.model.compiled import compiler_error
from lingraft.tables import counted
from lingraft.training.distributed import process_group

NumberFormat = Literal["fp32", "bf16"]
AutocastFactory = Callable[[], AbstractContextManager[object]]
"""Opens the context in which forward passes run."""
_FORMATS: tuple[NumberFormat, ...] = ("fp32", "bf16")
_WITHOUT_BF16 = "AVX2"
"""Capability of a CPU that computes bfloat16 with instructions for float32: at a tenth of their speed or less. A single
step may then last many times as long as a probe should."""
_SLOW = "fp32 would train many times as fast"
_PROBE_S = 2.0
"""Longest time that both formats are tried for."""
_WORTH_COMPILING_FLOPS = 1e17
"""FLOPs of a training from which on it runs compiled: minutes of a GPU, of which compiling takes one."""
_CLEAR, _FEWEST_ROUNDS = 1.3, 3
"""Ratio of speeds at which the probe ends early, and the rounds that it takes at least."""


def device() -> torch.device:
    """Return this process's CUDA device if there is one, else the CPU."""
    process_group.init_process_group()
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def device_name() -> str:
    """Return the name of the device that trains and evaluates, for people."""
    if device().type == "cuda":
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{[*named, platform.machine()][0]}, {counted(torch.get_num_threads(), 'thread')}"


def preserve_rng() -> AbstractContextManager[None]:
    """Restore torch's random generators afterwards; of GPUs only this process's own is touched."""
    own = device()
    return torch.random.fork_rng([] if own.type == "cpu" else [own])


@contextmanager
def tf32_products() -> Iterator[None]:
    """Multiply float32 matrices on a GPU in TF32, which has 10 bits of mantissa, at several times the rate.

    It is for training only, and so it ends with it: what a model is evaluated by afterwards must not depend on what
    else its process has done.
    """
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, True
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def compiles(flops: float) -> bool:
    """Return whether a training of so many FLOPs has its layers compiled: on a GPU, where that pays."""
    if device().type == "cpu" or flops < _WORTH_COMPILING_FLOPS:
        return False
    error = compiler_error(device())
    if error:
        say(f"layers and loss are not compiled, so training takes longer: {error}")
    return error is None


def autocast(choice: NumberFormat) -> AutocastFactory:
    """Return the context of a number format on this machine's device."""
    if choice == "fp32":
        return nullcontext
    return lambda: torch.autocast(device().type, dtype=torch.bfloat16)


def choose_precision(
    wanted: Precision, loss_of: Callable[[], Tensor], parameters: list[nn.Parameter]
) -> tuple[NumberFormat, str]:
    """Resolve a recipe's precision; `auto` times both formats on the very step to be trained.

    The probe lasts about two seconds, and ends earlier where one format is clearly faster. Gradients of `parameters`
    are cleared afterwards. A CPU without bfloat16 instructions needs no probe, nor does a GPU, which either has units
    for it or emulates it.

    Returns:
        The format, and a sentence that says why.
    """
    lacks_bf16 = device().type == "cpu" and torch.backends.cpu.get_cpu_capability() == _WITHOUT_BF16
    if wanted == "bf16" and lacks_bf16:
        return (
            wanted,
            f"precision bf16, as set, though this CPU has no bfloat16 instructions ({_WITHOUT_BF16}): {_SLOW}",
        )
    if wanted != "auto":
        return wanted, f"precision {wanted}, as set"
    if device().type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return "bf16", "precision bf16: this GPU has units for bfloat16"
        return "fp32", "precision fp32: this GPU has no units for bfloat16"
    if lacks_bf16:
        return "fp32", f"precision fp32: this CPU has no bfloat16 instructions ({_WITHOUT_BF16})"
    rates, took_s = _steps_per_s(loss_of)
    for parameter in parameters:
        parameter.grad = None
    faster: NumberFormat = "bf16" if rates["bf16"] > rates["fp32"] else "fp32"
    measured = f"bf16 {rates['bf16']:.1f} against fp32 {rates['fp32']:.1f} forward and backward passes a second"
    return faster, f"precision {faster}: {measured} in a probe of {took_s:.1f} s"


def _steps_per_s(loss_of: Callable[[], Tensor]) -> tuple[dict[NumberFormat, float], float]:
    """Try both formats in turns; median steps a second in each, and how long that took.

    On a busy machine single steps are held up, and would shift a mean.
    """

    def step_s(number_format: NumberFormat) -> float:
        started = time.perf_counter()
        with autocast(number_format)():
            loss = loss_of()
        loss.backward()
        return time.perf_counter() - started

    began = time.perf_counter()
    for number_format in _FORMATS:
        step_s(number_format)  # the first one allocates
    times: dict[NumberFormat, list[float]] = {number_format: [] for number_format in _FORMATS}
    while True:
        for number_format in _FORMATS:
            times[number_format].append(step_s(number_format))
        medians = {number_format: statistics.median(each) for number_format, each in times.items()}
        took_s = time.perf_counter() - began
        is_clear = len(times["fp32"]) >= _FEWEST_ROUNDS and max(medians.values()) > _CLEAR * min(medians.values())
        if is_clear or took_s >= _PROBE_S:
            return {number_format: 1 / median_s for number_format, median_s in medians.items()}, took_s

"""Facts about a machine that a recipe's sizes depend on: cores, memory, a GPU, and about how fast it trains."""

import os
from dataclasses import dataclass
from typing import Self

from lingraft.data.pool import available_cores
from lingraft.reports.cost.accelerators import ASSUMED_UTILISATION, PEAKS_TFLOPS

_FLOPS_A_CORE = 60e9
"""The demo's rate on two server cores, between those of fp32 and bf16, by the formulas of `cost`."""
_UNKNOWN_GPU_TFLOPS = 60.0
_NARROW = 0.25
"""Narrow models reach less of a GPU than those that the utilisation of `cost` is assumed for."""
GIB = 1 << 30


@dataclass(frozen=True)
class Machine:
    """Machine that trains."""

    cores: int
    memory_bytes: int
    gpu: str | None = None
    """Its name, if there is one."""
    gpu_memory_bytes: int = 0

    @classmethod
    def here(cls) -> Self:
        """The machine that this process runs on."""
        import torch

        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if not torch.cuda.is_available():
            return cls(available_cores(), memory)
        found = torch.cuda.get_device_properties(0)
        return cls(available_cores(), memory, found.name, found.total_memory)

    @property
    def flops_per_s(self) -> float:
        """FLOPs per second that training gets, about, by the formulas of `cost`: an assumption, not a measurement."""
        if self.gpu is None:
            return self.cores * _FLOPS_A_CORE
        peaks = [peak for name, peak in PEAKS_TFLOPS.items() if name in self.gpu]
        return (peaks or [_UNKNOWN_GPU_TFLOPS])[0] * 1e12 * ASSUMED_UTILISATION * _NARROW

    def __str__(self) -> str:
        gpu = f"{self.gpu} with {self.gpu_memory_bytes / GIB:.0f} GiB" if self.gpu else "no GPU"
        return f"{self.cores} CPU cores, {self.memory_bytes / GIB:.0f} GiB of memory, {gpu}"

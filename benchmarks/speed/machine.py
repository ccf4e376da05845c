"""On what was measured."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch


def described() -> dict[str, str]:
    """Processor or GPU, cores and versions."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{_processor()}, {_cores()} cores"
    return {"device": device} | {name: version(name) for name in ("torch", "transformers", "accelerate")}


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _processor() -> str:
    """Its name and the matrix units that matter to the numbers."""
    facts = Path("/proc/cpuinfo")
    if not facts.exists():
        return platform.processor() or platform.machine()
    lines = facts.read_text().splitlines()
    named = dict(line.split(":", 1) for line in lines if ":" in line)
    values = {key.strip(): value.strip() for key, value in named.items()}
    units = [unit for unit in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if unit in values.get("flags", "").split()]
    return f"{values.get('model name', platform.machine())} ({', '.join(units)})"

"""Machine and code that were measured."""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from lingraft.training.precision import device

_ROOT = Path(__file__).parents[2]
COMMIT_FILE = _ROOT / "COMMIT"


def described() -> dict[str, str]:
    """Processor or GPU, cores and versions."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{_processor()}, bound to {cores()} cores"
    packages = {package: version(package) for package in ("torch", "transformers", "accelerate")}
    return {"device": name, "kind": device().type} | packages


def commit() -> str | None:
    """Return the commit of the code at hand, and whether it has changed since; None where there is no repository.

    Sources that were copied from one have it in a file.
    """
    if COMMIT_FILE.exists():
        return COMMIT_FILE.read_text(encoding="utf-8").strip()
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    found = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def with_load(part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run a part; return what it found with the load of the machine, before and after, over the last minute."""
    before = os.getloadavg()[0]
    return part() | {"load_average": [before, os.getloadavg()[0]]}


def cores() -> int:
    """Return the number of cores that this process may use."""
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

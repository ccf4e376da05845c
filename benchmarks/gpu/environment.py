"""Device, versions, what is missing, and the rates of the device: products of matrices, and copies in its memory."""

import importlib.util
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.parts import Given
from benchmarks.speed.peak import Product, products, rate, wait
from lingraft.training.precision import device, device_name

REQUIRED = ("anyascii", "babel", "filelock", "fsspec", "numpy", "pydantic", "safetensors", "scipy", "sentencepiece")
OPTIONAL = ("tqdm", "typer", "zstandard", "accelerate", "datasets", "kfp", "kserve", "matplotlib", "mlflow")
OTHERS = ("onnx_ir", "onnxruntime", "optuna", "prometheus_client", "tokenizers", "transformers", "triton")
_LAUNCHES = 2000


def measured(given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return what the machine is, and what it comes to."""
    found = {
        "device": device_name(),
        "kind": device().type,
        "driver": _driver(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
        "missing": [name for name in (*REQUIRED, *OPTIONAL, *OTHERS) if importlib.util.find_spec(name) is None],
        "providers": providers(),
    }
    keep(found)
    tried, seconds = _products(given.tiny), 0.05 if given.tiny else 0.5
    found["flop_s"] = {"bf16": _rates(tried, "bf16", seconds), "fp32": _rates(tried, "fp32", seconds)}
    torch.backends.cuda.matmul.allow_tf32 = True
    found["flop_s"]["tf32"] = _rates(tried, "fp32", seconds)
    torch.backends.cuda.matmul.allow_tf32 = False
    found["copied_bytes_s"] = copied_bytes_s(1 << 22 if given.tiny else 1 << 30, seconds)
    found["launch_s"] = launch_s()
    return found


@torch.inference_mode()
def launch_s() -> float:
    """Seconds that the host takes to start a kernel: a step with more kernels than its seconds hold waits for it."""
    small = torch.zeros(8, device=device()).add_(1)
    wait()
    began = time.perf_counter()
    for _ in range(_LAUNCHES):
        small.add_(1)
    wait()
    return (time.perf_counter() - began) / _LAUNCHES


def providers() -> list[str]:
    """Execution providers of the ONNX Runtime that is installed; none if there is none."""
    if importlib.util.find_spec("onnxruntime") is None:
        return []
    import onnxruntime

    return list(onnxruntime.get_available_providers())


@torch.inference_mode()
def copied_bytes_s(size: int, seconds: float) -> float:
    """Bytes a second that a copy within the device's memory reads and writes.

    Args:
        size: bytes that are copied at once.
        seconds: time to repeat it for; the best repetition counts.
    """
    source = torch.ones(size // 4, device=device())
    target = torch.empty_like(source)
    best_s, ends_at = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < ends_at:
        wait()
        began = time.perf_counter()
        target.copy_(source)
        wait()
        best_s = min(best_s, time.perf_counter() - began)
    return 2 * size / best_s


def _products(tiny: bool) -> list[Product]:
    from benchmarks.gpu.training import shape_of

    squares = (128,) if tiny else (4096, 8192, 16384)
    return [*((size,) * 3 for size in squares), *([] if tiny else products(shape_of(512)))]


def _rates(tried: list[Product], number_format: Any, seconds: float) -> dict[str, float]:
    return {" x ".join(map(str, each)): rate(each, number_format, seconds) for each in tried}


def _driver() -> str | None:
    command = shutil.which("nvidia-smi")
    if command is None or not Path(command).exists():
        return None
    asked = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or None

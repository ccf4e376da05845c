"""Serving under ONNX Runtime on the device: mixed languages, separate sessions, and the Hugging Face pipeline.

Everything is measured by `benchmarks.serving`. The bundle has an fp16 body; separate models are fp32, as exported.
"""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu.environment import providers
from benchmarks.gpu.parts import Given
from lingraft.bundle.runtime import CUDA, default_provider
from lingraft.config.encoder import EncoderShape

_LANGUAGES, _VOCABULARY, _TEXTS, _ROUNDS = 8, 8000, 1024, 3
_BATCHES = (1, 8, 32, 128)


def measured(given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Texts a second and latencies of all sides; or what is missing for them."""
    if torch.cuda.is_available() and CUDA not in (found := providers()):
        return {"missing": f"ONNX Runtime has no {CUDA} here, only {found}: install onnxruntime-gpu"}
    from benchmarks.serving import pipelines, streams
    from benchmarks.serving.made import BASE, Plan, make

    shape, languages, vocabulary, texts, rounds = BASE, _LANGUAGES, _VOCABULARY, _TEXTS, _ROUNDS
    if given.tiny:
        shape = EncoderShape(width=32, layers=2, attention_heads=2, mlm_heads=(2,), block_tokens=64)
        languages, vocabulary, texts, rounds = 2, 300, 8, 1
    precisions: Any = ("fp32", "fp16") if torch.cuda.is_available() else ("fp32",)
    models = make(Plan(shape, languages, vocabulary, 1, precisions), given.out / "served")
    clients = (1, 2) if given.tiny else (1, 16, 64, 256)
    result: dict[str, Any] = {"provider": default_provider(), "plan": str(models.plan)}
    result["streams"] = streams.measured(models, texts, rounds, clients)
    keep(result)
    batches = _BATCHES[:1] if given.tiny else _BATCHES
    return result | {"pipelines": pipelines.measured(models, texts, rounds, batches)}

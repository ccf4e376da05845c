"""Sizes of a few thousand parameters, at which a test runs a benchmark whole in seconds."""

from typing import Any

_SIZES: dict[str, dict[str, Any]] = {
    "tokenizer": {"vocabulary": 120},
    "encoder": {"width": 16, "layers": 2, "attention_heads": 2, "mlm_heads": [1, 2], "block_tokens": 24},
    "pretraining": {"steps": 6, "batch_blocks": 8, "warmup_steps": 0},
    "adaptation": {"steps": 6, "batch_blocks": 8, "warmup_steps": 0, "depth": 1},
}
_EPOCHS = 0.5


def quick(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe, as JSON, at these sizes."""
    tasks = [task | {"finetuning": task["finetuning"] | {"epochs": _EPOCHS}} for task in raw["tasks"]]
    sections = {section: raw[section] | sizes for section, sizes in _SIZES.items()}
    return raw | sections | {"precision": "fp32", "tasks": tasks}

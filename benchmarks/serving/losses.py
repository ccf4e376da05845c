"""Loss of a trained model by number format: masked tokens found, for each format of body and tables, in each language.

A primary and adapted embeddings are exported with bodies in all precisions and tables in each format, and judged
under ONNX Runtime on held-out blocks, against PyTorch in float32.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lingraft.bundle.format import PRECISIONS, TABLE_FORMATS
from lingraft.export import evaluation_examples, export_bundle


class Trained(NamedTuple):
    """Artifacts that are evaluated."""

    primary: Path
    embeddings: Sequence[Path]
    blocks: Sequence[Path]
    most_blocks: int


def measured(trained: Trained) -> dict[str, Any]:
    """Score in float32 and loss, by tables' format, body's precision and language."""
    examples = evaluation_examples(None, trained.embeddings, [], trained.blocks)
    judged = {language: blocks_NT[: trained.most_blocks] for language, blocks_NT in examples.items()}
    parity = {}
    for tables in TABLE_FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "bundle"
            found = export_bundle(
                primary=trained.primary,
                task=None,
                embeddings=trained.embeddings,
                out=out,
                precisions=PRECISIONS,
                tables=tables,
                examples=judged,
            )
        parity[tables] = found.manifest.record["parity"]
    return {
        "shape": found.manifest.details["shape"],
        "blocks": {language: len(blocks_NT) for language, blocks_NT in judged.items()},
        "parity": parity,
    }


def worst(found: dict[str, Any], tables: str, precision: str) -> float:
    """The largest loss of a language, in points of a hundred."""
    return max(100 * one["loss"] for one in found["parity"][tables][precision].values() if "loss" in one)

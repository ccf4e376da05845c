"""Memory of one bundle of many languages, and of as many models of sentence-transformers, each in a process.

    python -m benchmarks.embedding_model.memory separate FOLDER ...
    python -m benchmarks.embedding_model.memory shared FOLDER ...

A process prints its resident bytes a step: with no model, one model, two and so on. Every weight is read once, as the
endpoint's side reads every row. With `shared`, all models have the first one's body in memory. Resident memory counts
libraries whole, as if no other process had them in use.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.embedding_model.made import Models
from benchmarks.serving.memory import run_side
from benchmarks.serving.memory_side import own_bytes
from lingraft.bundle.format import TABLE_FORMATS

SEPARATE, SHARED = "separate", "shared"


def measured(models: Models) -> dict[str, Any]:
    """Return bytes of the endpoint by number format of its tables, and of sentence-transformers by number of models."""
    served = {tables: run_side("bundles", str(models.bundle(tables))) for tables in TABLE_FORMATS}
    return {
        "server": served["float32"][0]["resident"],
        "served": {tables: steps[-1]["resident"] for tables, steps in served.items()},
        **{side: _run(side, models.sentence_transformers) for side in (SEPARATE, SHARED)},
    }


def _run(side: str, folders: Sequence[Path]) -> list[int]:
    command = [sys.executable, "-m", "benchmarks.embedding_model.memory", side, *map(str, folders)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return [int(line) for line in ran.stdout.splitlines()]


def steps(folders: Sequence[Path], *, shares_body: bool) -> Iterator[int]:
    """Load one model more a step, and yield the bytes of this process."""
    from sentence_transformers import SentenceTransformer

    loaded: list[Any] = []
    yield own_bytes("Rss")
    for folder in folders:
        model = SentenceTransformer(str(folder), device="cpu")
        if shares_body and loaded:
            for name, module in loaded[0][0].model.named_children():
                if name != "embeddings":
                    setattr(model[0].model, name, module)
        loaded.append(model)
        for parameter in model.parameters():
            parameter.sum()
        model.encode(["a"])
        yield own_bytes("Rss")


def main() -> None:
    """Print what one side takes."""
    side, *folders = sys.argv[1:]
    for size in steps([*map(Path, folders)], shares_body=side == SHARED):
        print(size, flush=True)


if __name__ == "__main__":
    main()

"""`python -m benchmarks.embedding_model --out DIR --page docs/benchmarks/embedding-models.md`

It measures an embedding model of many languages with one body: a new language in an index of vectors, and speed and
memory beside sentence-transformers with the same body. Weights are random, as neither depends on them.
Each part leaves a record as soon as it is done, so that a run that is stopped goes on; `--parts` runs some of them.
Bind the process to cores (`taskset -c 0`) to have all sides use as many threads.
"""

import argparse
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.embedding_model import adding, memory, page, speed
from benchmarks.embedding_model.made import Models, Plan, make
from benchmarks.pages import command_line, write_page
from benchmarks.speed.machine import commit, described, with_load
from benchmarks.speed.records import Records
from lingraft.bundle.runtime import installed_runtime
from lingraft.config.encoder import EncoderShape, Family


def main() -> None:
    """Measure what is not measured yet, and write the page."""
    given = _parser().parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    shape = EncoderShape(
        width=given.width,
        layers=given.layers,
        attention_heads=given.attention_heads,
        mlm_heads=(given.layers,),
        block_tokens=given.block_tokens,
        family=Family.model_validate("bert"),
    )
    models = make(Plan(shape, given.languages, given.vocabulary), given.out / "models")
    records = Records(given.out / "records.json", str(models.plan), machine())
    parts = parts_of(models, given)
    for name in given.parts or parts:
        records.get("parts", name, lambda part=parts[name]: with_load(part))
    found = {
        "command": command_line("benchmarks.embedding_model", sys.argv[1:], {"--page": "PAGE"}),
        "plan": str(models.plan),
        "machine": machine(),
        "commit": commit(),
        "parts": records.found.get("parts", {}),
    }
    write_page(given.page.with_suffix(""), found, page.page(found))


def parts_of(models: Models, given: argparse.Namespace) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return all parts by name."""
    return {
        "memory": lambda: memory.measured(models),
        "speed": lambda: speed.measured(models, given.rounds, given.batches),
        "adding": lambda: adding.measured(models, given.vectors, given.queries, given.out),
    }


def machine() -> dict[str, str]:
    """Return processor, cores and versions."""
    packages = (installed_runtime(), "sentence-transformers", "faiss-cpu")
    return described() | {package: version(package) for package in packages}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.embedding_model", description=(__doc__ or "").partition("\n\n")[2]
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of models, index and records")
    parser.add_argument("--page", type=Path, required=True, help="file of the page")
    parser.add_argument("--parts", nargs="*", help="only these; all if absent")
    parser.add_argument("--languages", type=int, default=10)
    parser.add_argument("--vocabulary", type=int, default=30_000, help="rows of each table")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--attention-heads", type=int, default=12)
    parser.add_argument("--block-tokens", type=int, default=512)
    parser.add_argument("--vectors", type=int, default=100_000, help="of the index")
    parser.add_argument("--queries", type=int, default=1000, help="in the added language")
    parser.add_argument("--rounds", type=int, default=200, help="queries of one text that are timed")
    parser.add_argument("--batches", type=int, default=20, help="batches that are timed, of each kind")
    return parser


if __name__ == "__main__":
    main()

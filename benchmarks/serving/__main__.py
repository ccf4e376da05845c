"""`python -m benchmarks.serving --out DIR --page docs/benchmarks`: what serving many languages from one body costs.

Against the same models as separate sessions, and one fixed single-language model. Each part leaves a record as soon as
it is done, so that a run that is stopped goes on; `--parts` runs some of them. Bind the process to cores
(`taskset -c 1`) to have all sides use as many threads.
"""

import argparse
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.pages import command_line, write_page
from benchmarks.serving import latency, memory, throughput
from benchmarks.serving.made import BASE, Plan, make
from benchmarks.serving.page import page
from benchmarks.speed.machine import commit, described
from benchmarks.speed.records import Records
from lingraft.bundle.runtime import installed_runtime
from lingraft.config.encoder import EncoderShape, Family
from lingraft.ranks import available_cores


def main() -> None:
    """Measure what is not measured yet, and write the page."""
    given = _parser().parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    plan = _plan(given)
    records = Records(given.out / "records.json", str(plan), machine())
    models = make(plan, given.out / "models")
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "memory": lambda: memory.measured(models, given.separate_models),
        "latency": lambda: latency.measured(models, given.rounds),
        "throughput": lambda: throughput.measured(models, given.texts, given.stream_rounds),
    }
    for name in given.parts or parts:
        records.get("parts", name, parts[name])
    found = {
        "command": command_line("benchmarks.serving", sys.argv[1:], {}),
        "plan": str(plan),
        "machine": machine(),
        "commit": commit(),
        "found": records.found.get("parts", {}),
    }
    write_page(given.page / "serving", found, page(found))


def machine() -> dict[str, str]:
    """Processor, cores, threads and versions."""
    runtime = installed_runtime()
    packages = {package: version(package) for package in (runtime, "kserve", "tokenizers")}
    return described() | packages | {"threads": str(available_cores())}


def _plan(given: argparse.Namespace) -> Plan:
    heads = given.width // (BASE.width // BASE.attention_heads) or 1
    shape = EncoderShape(
        width=given.width,
        layers=given.layers,
        attention_heads=heads,
        mlm_heads=(given.layers,),
        block_tokens=given.block_tokens,
        family=Family.model_validate(given.family),
    )
    return Plan(shape, given.languages, given.vocabulary, given.tasks)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of models and records")
    parser.add_argument("--page", type=Path, required=True, help="folder of the page")
    parser.add_argument("--parts", nargs="*", choices=("memory", "latency", "throughput"), help="all if absent")
    parser.add_argument("--languages", type=int, default=15)
    parser.add_argument("--tasks", type=int, default=2, choices=(1, 2))
    parser.add_argument("--vocabulary", type=int, default=50_000, help="rows of each table")
    parser.add_argument("--layers", type=int, default=BASE.layers)
    parser.add_argument("--width", type=int, default=BASE.width)
    parser.add_argument("--block-tokens", type=int, default=BASE.block_tokens)
    parser.add_argument("--family", choices=("roberta", "modern"), default="roberta", help="of the bodies")
    parser.add_argument("--rounds", type=int, default=30, help="of latency")
    parser.add_argument("--texts", type=int, default=128, help="of a stream")
    parser.add_argument("--stream-rounds", type=int, default=3)
    parser.add_argument("--separate-models", type=int, help="to open at most; as many as fit if absent")
    return parser


if __name__ == "__main__":
    main()

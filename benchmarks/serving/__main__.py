"""`python -m benchmarks.serving --out DIR --page docs/benchmarks`: what serving many languages from one body costs.

Against the same models as separate sessions, Hugging Face pipelines in PyTorch, and one fixed single-language model.
Each part leaves a record as soon as it is done, so that a run that is stopped goes on; `--parts` runs some of them.
Bind the process to cores (`taskset -c 1`) to have all sides use as many threads.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.serving import adding, body, latency, loading, losses, memory, overhead, page, pipelines, streams
from benchmarks.serving.made import BASE, Models, Plan, make
from benchmarks.speed.machine import commit, described, with_load
from benchmarks.speed.records import Records
from lingraft.bundle.runtime import installed_runtime
from lingraft.config.encoder import EncoderShape, Family
from lingraft.ranks import available_cores

Part = Callable[[], dict[str, Any]]


def main() -> None:
    """Measure what is not measured yet, and write the page."""
    given = _parser().parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    plan = _plan(given)
    records = Records(given.out / "records.json", str(plan), machine())
    parts = parts_of(make(plan, given.out / "models"), given)
    for name in given.parts or parts:
        if name in parts:
            records.get("parts", name, lambda part=parts[name]: with_load(part))
    command = shlex.join(["python", "-m", "benchmarks.serving", *sys.argv[1:]])
    found = records.found.get("parts", {})
    told = page.Told(
        command=command,
        plan=str(plan),
        machine=machine(),
        commit=commit(),
        bound_ms=given.bound_ms,
        found=found,
        name="serving" if given.family == "roberta" else f"serving-{given.family}",
    )
    page.write(told, given.page)


def parts_of(models: Models, given: argparse.Namespace) -> dict[str, Part]:
    """All parts by name; that of a trained model only where there is one."""
    found: dict[str, Part] = {
        "memory": lambda: memory.measured(models, given.separate_models),
        "latency": lambda: latency.measured(models, given.rounds),
        "streams": lambda: streams.measured(models, given.texts, given.stream_rounds),
        "adding": lambda: adding.measured(models),
        "loading": lambda: loading.measured(models, given.additions),
        "overhead": lambda: overhead.measured(models, given.rounds),
    }
    if given.family == "roberta":
        found["pipelines"] = lambda: pipelines.measured(models, given.texts, given.stream_rounds)
    if given.trained:
        trained = losses.Trained(given.trained, given.embeddings, given.blocks, given.judged_blocks)
        found["losses"] = lambda: losses.measured(trained)
    return found | {"body": lambda: body.compared(models.plan.shape, models.plan.vocabulary, given.rounds)}


def machine() -> dict[str, str]:
    """Processor, cores, threads and versions."""
    runtime = installed_runtime()
    packages = {package: version(package) for package in (runtime, "kserve", "sentencepiece")}
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
    parser.add_argument("--parts", nargs="*", help="only these; all that can be run if absent")
    parser.add_argument("--languages", type=int, default=15)
    parser.add_argument("--tasks", type=int, default=2, choices=(1, 2))
    parser.add_argument("--vocabulary", type=int, default=50_000, help="rows of each table")
    parser.add_argument("--layers", type=int, default=BASE.layers)
    parser.add_argument("--width", type=int, default=BASE.width)
    parser.add_argument("--block-tokens", type=int, default=BASE.block_tokens)
    parser.add_argument("--family", choices=("roberta", "modern"), default="roberta", help="of the bodies")
    parser.add_argument("--rounds", type=int, default=30, help="of latency and overhead")
    parser.add_argument("--texts", type=int, default=128, help="of a stream")
    parser.add_argument("--stream-rounds", type=int, default=3)
    parser.add_argument("--additions", type=int, default=5, help="times that a language is added to a running server")
    parser.add_argument("--bound-ms", type=float, default=1000.0, help="of latency, where throughput is compared")
    parser.add_argument("--separate-models", type=int, help="to open at most; as many as fit if absent")
    parser.add_argument("--trained", type=Path, help="a trained primary, for what number formats cost")
    parser.add_argument("--embeddings", type=Path, nargs="*", default=[], help="adapted to it")
    parser.add_argument("--blocks", type=Path, nargs="*", default=[], help="of its languages, to judge on")
    parser.add_argument("--judged-blocks", type=int, default=1000, help="of each language, at most")
    return parser


if __name__ == "__main__":
    main()

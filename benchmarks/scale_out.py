"""Tokens per second of a pretraining and an adaptation against the number of processes, and what agreeing costs.

    python -m benchmarks.scale_out --layouts 1x2 2x1 --shape small [--out scale-out.json]

A layout is processes x CPU threads of each; on GPUs, one a process, the threads matter little. Every layout trains the
same global batch by the library's own loop, checkpoints excepted; layouts alternate, and medians are printed. `--out`
keeps every round, by what was asked for and on which machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.speed.machine import commit, cores, described
from lingraft import ranks
from lingraft.artifacts.files import write_json
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.data.shards import blocks_in_memory
from lingraft.model.encoder import Encoder, freeze_except, mini_model
from lingraft.training.batches import masked_lm_stream
from lingraft.training.distributed import process_group
from lingraft.training.precision import device
from lingraft.training.run import TrainingRun, masked_lm_plan, training_run

SHAPES = {"small": (256, 4, 8_000), "base": (768, 12, 50_000)}
"""Width, attention heads, vocabulary; 12 layers."""
LAYERS, MINI, TOKENS = 12, 4, 128
PRETRAINING, ADAPTATION, MINI_ADAPTATION = KINDS = ("pretraining", "adaptation, 12 layers", "adaptation, 4 layers")
EXCHANGES = WHAT_TO_DO, LOSS = ("what to do", "loss")
CALLS = 200


class Layout(NamedTuple):
    """How many processes, and CPU threads of each."""

    processes: int
    threads: int

    def __str__(self) -> str:
        return f"{self.processes} x {self.threads}"

    @classmethod
    def parse(cls, text: str) -> "Layout":
        """Read a layout such as 2x1."""
        count, threads = map(int, text.split("x"))
        return cls(count, threads)


def recipe_for(shape: str, blocks: int, steps: int, precision: str) -> Recipe:
    """A recipe whose pretraining and adaptation have a point of the curve before what is measured, and one after."""
    width, attention_heads, vocabulary = SHAPES[shape]
    training = {"steps": steps, "batch_blocks": blocks, "learning_rate": 1e-4, "log_every_steps": steps // 3}
    return Recipe.parse(
        {
            "name": "scale-out",
            "source": "en",
            "targets": ["de"],
            "precision": precision,
            "text": {"kind": "folder", "path": "text"},
            "tokenizer": {"vocabulary": vocabulary},
            "encoder": {
                "width": width,
                "layers": LAYERS,
                "attention_heads": attention_heads,
                "mlm_heads": [MINI, LAYERS],
                "block_tokens": TOKENS,
            },
            "pretraining": training,
            "adaptation": training | {"depth": MINI},
        }
    )


def begun(recipe: Recipe, kind: str, vocabulary: int) -> TrainingRun:
    """A training on blocks of random tokens."""
    torch.manual_seed(1)
    encoder, settings = Encoder(recipe.encoder, vocabulary), recipe.pretraining
    blocks = blocks_in_memory(torch.randint(5, vocabulary, (1024, TOKENS)))
    if kind == PRETRAINING:
        plan = masked_lm_plan(recipe, recipe.steps_over(MINI)[Stage.PRETRAIN], encoder, settings)
        return training_run(recipe, plan, [*encoder.parameters()], masked_lm_stream(blocks, settings))
    depth = LAYERS if kind == ADAPTATION else MINI
    step = recipe.steps_over(depth)[Stage.ADAPT]
    mini = mini_model(encoder, depth)
    trained = freeze_except(mini, mini.vocabulary.parameters())
    return training_run(
        recipe, masked_lm_plan(recipe, step, mini, settings), trained, masked_lm_stream(blocks, settings)
    )


def tokens_per_s(run: TrainingRun) -> float:
    """Return the rate in the later two thirds of a training."""
    first, *_, last = run.points
    return (last.tokens - first.tokens) / (last.elapsed_s - first.elapsed_s)


def agreeing_s() -> dict[str, float]:
    """Seconds of the two exchanges of every step beside the gradients: what to do, and the loss."""
    loss = torch.zeros((), device=device())
    found = {}
    for name, exchange in (
        (WHAT_TO_DO, lambda: process_group.all_reduce_max(0)),
        (LOSS, lambda: process_group.all_reduce_sum(loss)),
    ):
        process_group.barrier()
        started = time.perf_counter()
        for _ in range(CALLS):
            exchange()
        if loss.is_cuda:
            torch.cuda.synchronize()
        found[name] = (time.perf_counter() - started) / CALLS
    return found


def beginning_s(recipe: Recipe, vocabulary: int) -> float:
    """Seconds in which a frozen model's weights are made the same on all processes, when an adaptation begins."""
    mini = mini_model(Encoder(recipe.encoder, vocabulary), LAYERS).to(device()).requires_grad_(False)
    mini.vocabulary.requires_grad_(True)
    process_group.barrier()
    started = time.perf_counter()
    process_group.data_parallel(mini)
    process_group.barrier()
    return time.perf_counter() - started


def work(shape: str, blocks: int, steps: int, precision: str, out: Path) -> None:
    """Train as one of the processes; the leader writes what was measured."""
    recipe, vocabulary = recipe_for(shape, blocks, steps, precision), SHAPES[shape][2]
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    found: dict[str, Any] = {kind: tokens_per_s(begun(recipe, kind, vocabulary)) for kind in KINDS}
    found |= {"agreeing": agreeing_s(), "beginning": beginning_s(recipe, vocabulary), "device": device().type}
    if ranks.is_rank_zero():
        out.write_text(json.dumps(found), encoding="utf-8")


def measured(layout: Layout, options: argparse.Namespace) -> dict[str, Any]:
    """Run a layout in processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        given = ["--shape", options.shape, "--blocks", options.blocks, "--steps", options.steps]
        given += ["--precision", options.precision, "--work", out]
        launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", layout.processes, "-m"]
        command = [sys.executable, "-m", *launcher, "benchmarks.scale_out", *given]
        environment = os.environ | {"OMP_NUM_THREADS": str(layout.threads)}
        subprocess.run([*map(str, command)], env=environment, check=True)
        return dict(json.loads(out.read_text(encoding="utf-8")))


def table(rounds: dict[Layout, list[dict[str, Any]]]) -> str:
    """Medians as Markdown, scaling against the first layout; ranges in brackets."""
    reference, *_ = rounds
    lines = ["| processes x threads | training | tokens/s | against " + f"{reference} |", "|---|---|---|---|"]
    for kind in KINDS:
        base = statistics.median(found[kind] for found in rounds[reference])
        for layout, founds in rounds.items():
            rates = [found[kind] for found in founds]
            middle = statistics.median(rates)
            spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
            lines.append(f"| {layout} | {kind} | {middle:,.0f} ({spread}) | {middle / base:.2f} |")
    for layout, founds in rounds.items():
        medians = {name: statistics.median(found["agreeing"][name] for found in founds) for name in EXCHANGES}
        words = ", ".join(f"{name} {seconds * 1e6:,.0f} us" for name, seconds in medians.items())
        beginning = statistics.median(found["beginning"] for found in founds)
        lines.append(f"\n{layout}: agreeing on {words} a step; equal weights at the beginning {beginning:.2f} s")
    return "\n".join(lines)


def kept(path: Path, name: str, rounds: dict[Layout, list[dict[str, Any]]]) -> None:
    """Put every round into a JSON file, in place of what was there by that name."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    layouts = {str(layout): founds for layout, founds in rounds.items()}
    write_json(
        path, found | {name: {"commit": commit(), "machine": described() | {"cores": str(cores())}, "layouts": layouts}}
    )


def main() -> None:
    """Alternate the layouts, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", nargs="+", type=Layout.parse, default=[Layout(1, 2), Layout(2, 1)])
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--blocks", type=int, default=32, help="of an update, over all processes")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file that keeps every round")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.shape, options.blocks, options.steps, options.precision, options.work)
        return
    rounds: dict[Layout, list[dict[str, Any]]] = {layout: [] for layout in options.layouts}
    for _ in range(options.rounds):
        for layout, founds in rounds.items():
            founds.append(measured(layout, options))
    where, machine = rounds[options.layouts[0]][0]["device"], described()["device"]
    asked = f"{options.shape} shape, {options.blocks} x {TOKENS} tokens an update, {options.precision}"
    print(f"{machine}, {where}, torch {torch.__version__}")
    print(f"{asked}, medians of {options.rounds}\n")
    print(table(rounds))
    if options.out:
        kept(options.out, f"{asked}, {machine}", rounds)


if __name__ == "__main__":
    main()

"""Training speed and memory: against transformers.Trainer, and against the machine's limit.

    python -m benchmarks.training_speed [--family modern] [--only TEXT] [--rounds 5] [--tokens 4096] [--heap] [--plain]

Each comparison runs both sides in turns, each in a process of its own. Whatever `--out`.json holds is not measured
again, so an interrupted run goes on where it was, on the same machine, with the same versions and batch only; the table
(.md) and the plot (.png) are drawn anew each time.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.pages import RECORD_SUFFIX, write_page
from benchmarks.speed.cells import FAMILIES, Cell, cells
from benchmarks.speed.machine import described
from benchmarks.speed.measure import compared, tuned
from benchmarks.speed.peak import fastest, rates
from benchmarks.speed.plot import draw
from benchmarks.speed.records import OtherMachineError, Records
from benchmarks.speed.settings import Settings
from benchmarks.speed.table import table

_HEAP_ROUNDS = 2
_PAGES = {
    "roberta": Path("docs/benchmarks/training-speed"),
    "modern": Path("docs/benchmarks/training-speed-modern"),
}


def measure(cell: Cell, records: Records, rounds: int, heap: bool, plain: bool) -> None:
    """All measurements of a cell, those of its peer and its machine included; if asked for, of more peers."""
    product = fastest(records.get("peak", f"{cell.shape.name}, {cell.format}", lambda: rates(cell.shape, cell.format)))
    best = Settings(**records.get("tuning", cell.peer.name, lambda: tuned(cell.peer))["chosen"])
    records.get("comparison", cell.name, lambda: compared(cell, best, rounds, product))
    if heap:
        reused = Settings(**{**best.plain(), "reused_heap": True})
        records.get("heap", cell.name, lambda: compared(cell, reused, _HEAP_ROUNDS, product))
    if plain and cell.training.step.heads:
        loop = Settings(plain_loop=True)
        records.get("plain", cell.name, lambda: compared(cell, loop, rounds, product))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="comparisons whose name has this in it; all if absent")
    parser.add_argument("--family", choices=FAMILIES, default="roberta", help="of the encoders")
    parser.add_argument("--rounds", type=int, default=5, help="of both sides, in turns")
    parser.add_argument("--tokens", type=int, default=4096, help="of an update")
    parser.add_argument("--heap", action="store_true", help="also run Trainer with its freed memory reused, on a CPU")
    parser.add_argument("--plain", action="store_true", help="also run a loop with logits at masked places only")
    parser.add_argument("--out", type=Path, help="without suffix; under docs/benchmarks if absent")
    given = parser.parse_args()
    if given.heap and torch.cuda.is_available():
        parser.error("--heap is a setting of the allocator of a CPU: hide the GPU (CUDA_VISIBLE_DEVICES=)")
    out = given.out or _PAGES[given.family]
    out.parent.mkdir(parents=True, exist_ok=True)
    chosen = cells(given.tokens, given.family)
    try:
        records = Records(out.with_suffix(RECORD_SUFFIX), f"{given.tokens} tokens an update", described())
    except OtherMachineError as error:
        parser.error(str(error))
    for cell in chosen:
        if given.only in cell.name:
            measure(cell, records, given.rounds, given.heap, given.plain)
    measured = [cell for cell in chosen if cell.name in records.found.get("comparison", {})]
    if measured:
        write_page(out, records.found, table(measured, records.found), draw(measured, records.found))


if __name__ == "__main__":
    main()

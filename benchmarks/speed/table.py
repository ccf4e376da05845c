"""The comparison as Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.speed.aims import ratio_aim, share_aim
from benchmarks.speed.cells import Cell
from benchmarks.speed.settings import Settings
from lingraft.tables import markdown_table

_GIB = 2**30


_MORE_PEERS = {
    "heap": (
        "with its heap reused",
        " With its heap reused: Trainer run with the allocator setting that lingraft makes for itself on a CPU.",
    ),
    "plain": (
        "plain loop",
        " Plain loop: as many times faster than a loop of PyTorch over transformers' model of as many layers, with "
        "SDPA, fused AdamW and logits at masked places only.",
    ),
}
"""Further peers, by their part of the records: head of the column, and what is said of them."""


def table(cells: Sequence[Cell], found: dict[str, Any]) -> str:
    """A page: what was compared on what, the ratios, the shares of the peak, memory, and the peer's settings."""
    [(batch, machine)] = found["machine"].items()
    versions = ", ".join(f"{name} {version}" for name, version in machine.items() if name not in ("device", "kind"))
    parts = [
        "# Training speed and memory" + (", modern encoders" if _family(cells) else ""),
        f"`python -m benchmarks.training_speed{_family(cells)}` on {machine['device']}; {versions}; {batch}.",
        "Trainer is `transformers.Trainer` with the recipe of run_mlm (run_glue for finetuning), at the fastest of the "
        "settings that were tried, no dropout on either side, equal shape, batch, length and clipping. A "
        "mini-model adaptation stands against "
        "Trainer's adaptation over all layers, which is what it takes the place of. Both sides run in turns, each in a "
        "process of its own; ratios are medians over the rounds. lingraft reads its blocks from shards on disk, "
        f"Trainer from memory. Code measured: {_commits(cells, found)}.",
        "## Tokens a second",
        _speed(cells, found),
        "FLOPs are the paper's (A1, A3, A4; finetuning by A1 without a head), "
        + ("with pre-norm layers counted by their own widths and windows, " if _family(cells) else "")
        + "so the FLOP ratio says what fewer layers alone would give"
        + ("." if _family(cells) else "; away from the base shape it is the aim.")
        + "".join(said for part, (_, said) in _MORE_PEERS.items() if found.get(part)),
        "## Share of the machine's matrix-multiplication peak",
        "The peak is the rate of the fastest product of the step, or of a large square, measured between the rounds of "
        "the same comparison; the median counts.",
        _shares(cells, found, machine["kind"]),
        "## Peak memory of the process, the first step, and waiting for data",
        "Waiting is that for the third and later batches of a round: the first two were made while Trainer trained.",
        _memory(cells, found),
        "## Trainer's settings",
        "The fastest of those that were tried; the records have all.",
        _tuning(found),
    ]
    return "\n\n".join(parts) + "\n"


def peak_of(cell: Cell, found: dict[str, Any]) -> float:
    """FLOP/s of the fastest matrix product in the cell's format, between the rounds of its comparison."""
    peak: float = found["comparison"][cell.name]["peak_flop_s"]
    return peak


def share_of_peak(cell: Cell, found: dict[str, Any]) -> float:
    """FLOP/s by the paper's formulas over the machine's peak."""
    step_s: float = found["comparison"][cell.name]["lingraft"]["step_s"]
    return cell.flops / step_s / peak_of(cell, found)


def _speed(cells: Iterable[Cell], found: dict[str, Any]) -> str:
    more = {part: head for part, (head, _) in _MORE_PEERS.items() if found.get(part)}
    head = ["shape", "format", "training", "lingraft", "Trainer", "ratio", "aim", "FLOP ratio", *more.values()]
    rows = []
    for cell in cells:
        record = found["comparison"][cell.name]
        rates = [f"{cell.shape.tokens_per_step / record[side]['step_s']:,.0f}" for side in ("lingraft", "trainer")]
        ratios = f"**{record['ratio']:.2f}**", _aim(record["ratio"], ratio_aim(cell), ".2f"), f"{cell.flop_ratio:.2f}"
        others = (found[part].get(cell.name) for part in more)
        rows.append([*_names(cell), *rates, *ratios, *(f"{other['ratio']:.2f}" if other else "-" for other in others)])
    return markdown_table(head, rows, left=3)


def _shares(cells: Iterable[Cell], found: dict[str, Any], kind: str) -> str:
    head = ["shape", "format", "training", "GFLOP an update", "GFLOP/s", "peak GFLOP/s", "share", "aim"]
    rows = []
    for cell in cells:
        peak, share = peak_of(cell, found), share_of_peak(cell, found)
        rows.append(
            [
                *_names(cell),
                f"{cell.flops / 1e9:,.0f}",
                f"{share * peak / 1e9:,.0f}",
                f"{peak / 1e9:,.0f}",
                f"{share:.0%}",
                _aim(share, share_aim(cell, kind), ".0%"),
            ]
        )
    return markdown_table(head, rows, left=3)


def _memory(cells: Iterable[Cell], found: dict[str, Any]) -> str:
    sides = "lingraft", "trainer"
    head = ["shape", "format", "training", "lingraft GiB", "Trainer GiB"]
    head += ["first step s", "Trainer's", "waiting for the next batch"]
    rows = []
    for cell in cells:
        record = found["comparison"][cell.name]
        own = record["lingraft"]
        peaks = [f"{record[side]['peak_bytes'] / _GIB:.2f}" for side in sides]
        firsts = [f"{record[side]['first_step_s']:.2f}" for side in sides]
        rows.append([*_names(cell), *peaks, *firsts, f"{own['waiting_s'] / own['step_s']:.2%}"])
    return markdown_table(head, rows, left=3)


def _tuning(found: dict[str, Any]) -> str:
    head = ["what Trainer trains", "settings", "seconds a step", "first step", "of settings tried"]
    rows = []
    for name, record in found["tuning"].items():
        for trial in record["trials"]:
            if trial["settings"] == record["chosen"]:
                times = [f"{trial[key]:.3f}" for key in ("step_s", "warmup_s")]
                rows.append([name, str(Settings(**trial["settings"])), *times, str(len(record["trials"]))])
    return markdown_table(head, rows, left=2)


def _aim(reached: float, aim: float | None, form: str) -> str:
    """Return what was aimed at, and whether it was missed."""
    if aim is None:
        return "-"
    return f"{aim:{form}}" if round(reached, 2) >= round(aim, 2) else f"{aim:{form}}, missed"


def _family(cells: Sequence[Cell]) -> str:
    family = cells[0].shape.family
    return "" if family == "roberta" else f" --family {family}"


def _commits(cells: Iterable[Cell], found: dict[str, Any]) -> str:
    known = dict.fromkeys(found["comparison"][cell.name]["commit"] for cell in cells)
    return ", ".join(commit or "outside a repository" for commit in known)


def _names(cell: Cell) -> list[str]:
    return [cell.shape.name, cell.format, str(cell.training)]

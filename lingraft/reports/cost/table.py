"""Costs as an aligned table for people, and as JSON for machines."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from lingraft.config.recipe import Recipe
from lingraft.model.flops import EXA, V100_DAY_FLOPS, V100_FLOPS_PER_S, counted_otherwise
from lingraft.reports.cost.accelerators import Accelerator
from lingraft.reports.cost.bill import Bill, BilledRun, OmittedSystem
from lingraft.tables import counted, text_table

_SMALL = 0.1
"""Number below which two decimals say too little."""


class Duration(NamedTuple):
    """Time that several accelerators take side by side."""

    hours: float
    """Time until the last job ends."""
    rented_hours: float
    """Accelerator-hours, idle ones included: one at first, then all that have a job, until the last job ends."""


@dataclass(frozen=True)
class CostReport:
    """Contents of the tables."""

    recipe: Recipe
    bills: Sequence[Bill]
    omitted: Sequence[OmittedSystem]
    search: BilledRun | None
    languages: tuple[str, ...]
    """Names of the target languages that are counted."""
    accelerators: Sequence[Accelerator]
    gpus: int
    """Accelerators of each kind, with one job at a time on each."""

    @property
    def counts(self) -> list[int]:
        """Numbers of languages to show: one, and all."""
        return sorted({1, len(self.languages)})

    def duration(self, bill: Bill, accelerator: Accelerator) -> Duration:
        """Return what a system's runs for all languages take on `gpus` accelerators of one kind.

        Pretraining and step 1b come first. Of the rest, the longest job goes to the accelerator that is free soonest
        (Graham 1969): jobs of equal length end as early as they can, others at most 4/3 times as late.
        """
        first = sum(accelerator.hours(run.flops) for run in bill.runs if run.runs_first)
        jobs = [accelerator.hours(bill.language_flops)] * len(self.languages)
        for run in bill.runs:
            if not (run.runs_first or run.is_per_language):
                jobs += [accelerator.hours(run.flops)] * run.seeds
        busy = [0.0] * min(self.gpus, len(jobs))
        for hours in sorted(jobs, reverse=True):
            heapq.heapreplace(busy, busy[0] + hours)
        return Duration(first + max(busy), first + len(busy) * max(busy))


def language_names(recipe: Recipe, count: int) -> tuple[str, ...]:
    """Return names of so many target languages: the recipe's, and numbers for those beyond."""
    unnamed = (f"language {number}" for number in range(len(recipe.targets) + 1, count + 1))
    return (*recipe.targets[:count], *unnamed)


def as_text(costs: CostReport) -> str:
    """Return tables of plain text: FLOPs by system and step, and for each accelerator hours and money."""
    shape = costs.recipe.encoder
    heading = (
        f"{costs.recipe.name}: width {shape.width}, {shape.layers} layers, {costs.recipe.tokenizer.vocabulary:,} "
        f"pieces, blocks of {shape.block_tokens} tokens; {costs.recipe.source.language} to "
        f"{counted(len(costs.languages), 'language')}"
    )
    blocks = [[heading], _steps_table(costs), list(_notes(costs))]
    blocks += [_accelerator_table(costs, accelerator) for accelerator in costs.accelerators]
    return "\n\n".join("\n".join(lines) for lines in blocks)


def format_amount(number: float) -> str:
    """Return a number with two decimals, or three figures of what is too small for that."""
    return f"{number:.3g}" if 0 < number < _SMALL else f"{number:,.2f}"


def _steps_table(costs: CostReport) -> list[str]:
    rows = [["system", "step", "layers", "heads", "equation", "updates", "EFLOPs", "V100-days"]]
    for bill in costs.bills:
        for run in bill.runs:
            each = ", each language" if run.is_per_language else f", each of {run.seeds} seeds" * (run.seeds > 1)
            rows.append(
                [
                    bill.system if run is bill.runs[0] else "",
                    f"{run.name}{each}",
                    str(run.step.layers),
                    str(len(run.step.heads)),
                    run.formula,
                    f"{run.updates:,}",
                    *_compute_cells(run.flops),
                ]
            )
        for languages in costs.counts:
            total = f"total, {counted(languages, 'language')}"
            rows.append(["", total, "", "", "", "", *_compute_cells(bill.flops(languages))])
    return text_table(rows, left=2)


def _compute_cells(flops: float) -> tuple[str, str]:
    return format_amount(flops / EXA), format_amount(flops / V100_DAY_FLOPS)


def _notes(costs: CostReport) -> Iterator[str]:
    shape = costs.recipe.encoder
    yield (
        "Equations of the paper's appendix A.1; a V100-day is 24 hours at the paper's effective "
        f"{V100_FLOPS_PER_S / 1e12:g} TFLOP/s, {V100_DAY_FLOPS / EXA:.3f} EFLOPs."
    )
    if note := counted_otherwise(shape):
        yield note
    if any(accelerator.price_per_hour is not None for accelerator in costs.accelerators):
        yield "Money until done is for all accelerators that get a job: one at first, then each to the end."
    if costs.search:
        most = format_amount(costs.search.seeds * costs.search.flops / EXA)
        yield f"Not counted: the depth search, {costs.search.seeds} trials, at most {most} EFLOPs together."
    for absent in costs.omitted:
        yield f"Left out: {absent.system} at depth {absent.depth}: {absent.reason}"


def _accelerator_table(costs: CostReport, accelerator: Accelerator) -> list[str]:
    priced = accelerator.price_per_hour is not None
    title = (
        f"{accelerator.name}: {accelerator.utilisation:.1%} ({accelerator.origin}) of a peak of "
        f"{accelerator.peak_tflops:g} TFLOP/s, so {accelerator.effective_tflops:.4g} TFLOP/s"
        + (f"; {accelerator.price_per_hour:,.2f} an hour" if priced else "")
    )
    head = ["system", "layers"]
    for span in (
        *(f"{counted(languages, 'language')}, hours" for languages in costs.counts),
        f"on {counted(costs.gpus, 'GPU')}, hours until done",
    ):
        head += [span, "money"] if priced else [span]
    rows = [head]
    for bill in costs.bills:
        cells = [bill.system, str(bill.adapted_layers)]
        worked = [accelerator.hours(bill.flops(languages)) for languages in costs.counts]
        for hours, paid_hours in [*zip(worked, worked, strict=True), costs.duration(bill, accelerator)]:
            money = accelerator.money(paid_hours)
            cells += [format_amount(hours), *([format_amount(money)] if money is not None else [])]
        rows.append(cells)
    return [title, *text_table(rows)]


def as_json(costs: CostReport) -> dict[str, Any]:
    """Return costs unrounded; FLOPs, hours, and money in the currency of the prices given."""
    return {
        "recipe": costs.recipe.name,
        "languages": list(costs.languages),
        "systems": [_system_json(bill, costs.counts) for bill in costs.bills],
        "left_out": [absent._asdict() for absent in costs.omitted],
        "search": _run_json(costs.search, len(costs.languages)) if costs.search else None,
        "accelerators": [
            {
                **asdict(accelerator),
                "effective_tflops": accelerator.effective_tflops,
                "systems": [_hours_json(costs, bill, accelerator) for bill in costs.bills],
            }
            for accelerator in costs.accelerators
        ],
    }


def _run_json(run: BilledRun, languages: int) -> dict[str, Any]:
    return {
        "name": run.name,
        "trained": run.step.trained,
        "layers": run.step.layers,
        "fresh_layers": run.step.fresh_layers,
        "heads": list(run.step.heads),
        "equation": run.formula,
        "updates": run.updates,
        "runs": run.count_for(languages),
        "flops_per_run": run.flops,
        "v100_days_per_run": run.flops / V100_DAY_FLOPS,
    }


def _system_json(bill: Bill, counts: Sequence[int]) -> dict[str, Any]:
    return {
        "system": bill.system,
        "depth": bill.depth,
        "steps": [_run_json(run, counts[-1]) for run in bill.runs],
        "totals": [
            {"languages": n, "flops": bill.flops(n), "v100_days": bill.flops(n) / V100_DAY_FLOPS} for n in counts
        ],
    }


def _hours_json(costs: CostReport, bill: Bill, accelerator: Accelerator) -> dict[str, Any]:
    duration = costs.duration(bill, accelerator)
    hours = accelerator.hours(bill.flops(len(costs.languages)))
    return {
        "system": bill.system,
        "depth": bill.depth,
        "gpus": costs.gpus,
        "hours": hours,
        "money": accelerator.money(hours),
        "makespan_hours": duration.hours,
        "rented_hours": duration.rented_hours,
        "rented_money": accelerator.money(duration.rented_hours),
    }

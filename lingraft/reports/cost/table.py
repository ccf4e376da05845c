"""Costs as an aligned table for people, and as JSON for machines."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lingraft.config.recipe import Recipe
from lingraft.model.flops import EXA, V100_DAY_FLOPS, V100_FLOPS_PER_S
from lingraft.reports.cost.accelerators import Accelerator
from lingraft.reports.cost.bill import Bill, BilledRun, OmittedSystem
from lingraft.reports.cost.plan import Plan, PlannedJob, plan_jobs

_GAP = "  "
_SMALL = 0.1
"""Below this, two decimals say too little."""


@dataclass(frozen=True)
class CostReport:
    """What a table shows."""

    recipe: Recipe
    bills: Sequence[Bill]
    omitted: Sequence[OmittedSystem]
    search: BilledRun | None
    languages: tuple[str, ...]
    """Names of the target languages that are counted."""
    accelerators: Sequence[Accelerator]
    gpus: int
    """Of each kind, one job at a time on each."""

    def plan(self, bill: Bill, accelerator: Accelerator) -> Plan:
        """A system's runs for all languages on `gpus` accelerators of one kind."""
        first = [PlannedJob(run.name, accelerator.hours(run.flops)) for run in bill.runs if run.runs_first]
        once_each = [run for run in bill.runs if not (run.runs_first or run.is_per_language)]
        rest = [PlannedJob(name, accelerator.hours(bill.language_flops)) for name in self.languages]
        rest += [PlannedJob(name, accelerator.hours(run.flops)) for run in once_each for name in _seeds(run)]
        return plan_jobs(first, rest, self.gpus)


def _seeds(run: BilledRun) -> list[str]:
    return [f"{run.name} ({number} of {run.seeds})" for number in range(1, run.seeds + 1)]


def languages_of(recipe: Recipe, count: int) -> tuple[str, ...]:
    """Names of so many target languages: the recipe's, and numbers for those beyond."""
    unnamed = (f"language {number}" for number in range(len(recipe.targets) + 1, count + 1))
    return (*recipe.targets[:count], *unnamed)


def as_text(costs: CostReport) -> str:
    """Tables of plain text: FLOPs by system and step, and for each accelerator hours, money and a plan."""
    blocks = [_heading(costs), _steps_table(costs), _notes(costs)]
    for accelerator in costs.accelerators:
        blocks += [_accelerator_table(costs, accelerator), *_plans(costs, accelerator)]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def as_json(costs: CostReport) -> dict[str, Any]:
    """The same and more, unrounded; FLOPs, hours, and money in the currency of the prices given."""
    return {
        "recipe": costs.recipe.name,
        "languages": list(costs.languages),
        "systems": [_system_json(bill, len(costs.languages)) for bill in costs.bills],
        "left_out": [absent._asdict() for absent in costs.omitted],
        "search": _run_json(costs.search, len(costs.languages)) if costs.search else None,
        "accelerators": [_accelerator_json(costs, accelerator) for accelerator in costs.accelerators],
    }


def format_amount(number: float) -> str:
    """Two decimals, or three figures of what is too small for that."""
    return f"{number:.3g}" if 0 < number < _SMALL else f"{number:,.2f}"


def _counted(languages: int) -> str:
    return f"{languages} language{'' if languages == 1 else 's'}"


def _heading(costs: CostReport) -> list[str]:
    shape = costs.recipe.encoder
    return [
        f"{costs.recipe.name}: width {shape.width}, {shape.layers} layers, {costs.recipe.tokenizer.vocabulary:,} "
        f"pieces, blocks of {shape.block_tokens} tokens; {costs.recipe.source} to {_counted(len(costs.languages))}"
    ]


def _steps_table(costs: CostReport) -> list[str]:
    rows = [["system", "step", "layers", "heads", "equation", "updates", "EFLOPs", "V100-days"]]
    for bill in costs.bills:
        rows += [[bill.system if run is bill.runs[0] else "", *_step_cells(run)] for run in bill.runs]
        for languages in sorted({1, len(costs.languages)}):
            flops = bill.flops(languages)
            total = f"total, {_counted(languages)}"
            rows.append(["", total, "", "", "", "", format_amount(flops / EXA), format_amount(flops / V100_DAY_FLOPS)])
    return _aligned(rows, texts=2)


def _step_cells(run: BilledRun) -> list[str]:
    name = run.name + (", each language" if run.is_per_language else f", each of {run.seeds} seeds" * (run.seeds > 1))
    layers = str(run.step.layers)
    heads = str(len(run.step.heads))
    return [
        name,
        layers,
        heads,
        run.formula,
        f"{run.updates:,}",
        format_amount(run.flops / EXA),
        format_amount(run.v100_days),
    ]


def _notes(costs: CostReport) -> list[str]:
    shape = costs.recipe.encoder
    notes = [
        "Equations of the paper's appendix A.1; a V100-day is 24 hours at the paper's effective "
        f"{V100_FLOPS_PER_S / 1e12:g} TFLOP/s, {V100_DAY_FLOPS / EXA:.3f} EFLOPs."
    ]
    if shape.feedforward not in (None, 4 * shape.width):
        notes.append(f"The equations take feed-forward layers of 4 x width; the recipe's have {shape.feedforward}.")
    if any(accelerator.price_per_hour is not None for accelerator in costs.accelerators):
        notes.append("Money until done is for all accelerators that get a job: one at first, then each to the end.")
    if costs.search:
        most = format_amount(costs.search.seeds * costs.search.flops / EXA)
        notes.append(f"Not counted: the depth search, {costs.search.seeds} trials, at most {most} EFLOPs together.")
    return notes + [f"Left out: {absent.system} at depth {absent.depth}: {absent.reason}" for absent in costs.omitted]


def _accelerator_table(costs: CostReport, accelerator: Accelerator) -> list[str]:
    priced = accelerator.price_per_hour is not None
    price = f"; {accelerator.price_per_hour:,.2f} an hour" if priced else ""
    title = (
        f"{accelerator.name}: {accelerator.utilisation:.1%} ({accelerator.origin}) of a peak of "
        f"{accelerator.peak_tflops:g} TFLOP/s, so {accelerator.effective_tflops:.4g} TFLOP/s{price}"
    )
    counts = sorted({1, len(costs.languages)})
    spans = [*(f"{_counted(languages)}, hours" for languages in counts), f"on {_gpus(costs)}, hours until done"]
    head = ["system", "layers", *(cell for span in spans for cell in ([span, "money"] if priced else [span]))]
    rows = [head, *(_accelerator_cells(costs, bill, accelerator, counts) for bill in costs.bills)]
    return [title, *_aligned(rows, texts=1)]


def _accelerator_cells(costs: CostReport, bill: Bill, accelerator: Accelerator, counts: Sequence[int]) -> list[str]:
    planned = costs.plan(bill, accelerator)
    worked = [accelerator.hours(bill.flops(languages)) for languages in counts]
    spans = [(hours, hours) for hours in worked] + [(planned.makespan_hours, planned.rented_hours)]
    cells = [bill.system, str(bill.adapted_layers)]
    for hours, paid_hours in spans:
        money = accelerator.money(paid_hours)
        cells += [format_amount(hours), *([format_amount(money)] if money is not None else [])]
    return cells


def _gpus(costs: CostReport) -> str:
    return f"{costs.gpus} GPU{'' if costs.gpus == 1 else 's'}"


def _plans(costs: CostReport, accelerator: Accelerator) -> Iterator[list[str]]:
    if costs.gpus == 1:
        return
    for bill in costs.bills:
        made = costs.plan(bill, accelerator)
        title = f"Plan of {bill.system} over {bill.adapted_layers} layers on {costs.gpus} x {accelerator.name}"
        quality = f"at most {made.excess:.1%} longer than the shortest" if made.excess else "none is shorter"
        lanes = [
            f"{_GAP}GPU {number}: {', '.join(_job(job) for job in lane)}"
            for number, lane in enumerate([(*made.first, *made.lanes[0]), *made.lanes[1:]], start=1)
            if lane
        ]
        idle = [f"{_GAP}{costs.gpus - len(lanes)} without a job"] if len(lanes) < costs.gpus else []
        yield [f"{title}: {format_amount(made.makespan_hours)} hours; {quality}", *lanes, *idle]


def _job(job: PlannedJob) -> str:
    return f"{job.name} {format_amount(job.hours)} h"


def _aligned(rows: Sequence[Sequence[str]], texts: int) -> list[str]:
    """Lines with the first `texts` columns to the left and numbers to the right, a rule below the first."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        _GAP.join(
            cell.ljust(width) if index < texts else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


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
        "v100_days_per_run": run.v100_days,
    }


def _system_json(bill: Bill, languages: int) -> dict[str, Any]:
    return {
        "system": bill.system,
        "depth": bill.depth,
        "steps": [_run_json(run, languages) for run in bill.runs],
        "totals": [
            {"languages": n, "flops": bill.flops(n), "v100_days": bill.flops(n) / V100_DAY_FLOPS}
            for n in sorted({1, languages})
        ],
    }


def _accelerator_json(costs: CostReport, accelerator: Accelerator) -> dict[str, Any]:
    return {
        **asdict(accelerator),
        "effective_tflops": accelerator.effective_tflops,
        "systems": [_plan_json(costs, bill, accelerator) for bill in costs.bills],
    }


def _plan_json(costs: CostReport, bill: Bill, accelerator: Accelerator) -> dict[str, Any]:
    made = costs.plan(bill, accelerator)
    hours = accelerator.hours(bill.flops(len(costs.languages)))
    return {
        "system": bill.system,
        "depth": bill.depth,
        "gpus": costs.gpus,
        "hours": hours,
        "money": accelerator.money(hours),
        "makespan_hours": made.makespan_hours,
        "rented_hours": made.rented_hours,
        "rented_money": accelerator.money(made.rented_hours),
        "at_most_over_the_shortest": made.excess,
        "first": [job._asdict() for job in made.first],
        "lanes": [[job._asdict() for job in lane] for lane in made.lanes],
    }

"""Claims of the paper beside what our records say, in one table that is read in a minute."""

import math
from collections.abc import Callable, Mapping

from lingraft.comparison.plan import MASKED
from lingraft.config.systems import System
from lingraft.reports.paper.efficiency import Ratios
from lingraft.reports.paper.published import RETAINED_PERCENT, SPEED_UPS
from lingraft.reports.paper.records import PaperRecords, TaskFacts
from lingraft.reports.paper.report_table import ReportTable, TableRow, format_mean, format_ratio
from lingraft.reports.paper.results_table import (
    COMPUTE,
    MEASURED_SECONDS,
    CostMeasure,
    MissingValue,
    ResultsTable,
    TargetRule,
    Variant,
)
from lingraft.reports.paper.score_tables import final_table
from lingraft.stages.results import SeedScores
from lingraft.tables import percent

_NOTHING = "–"
_COUNTED = (
    "Means over languages, ratios taken by language; in brackets, over how many of the languages where not over all; "
    "–: in none it counts, or was reached."
)
_LESS = "Compute is to reach the trivial answer's score and 95% of what BL_BASE has over it in the end."
_PRINTED_IN_SOURCE = 86.2 - 86.4
"""Points by which MINIJOINT's primary scores higher than BL_BASE's (table 5)."""
Say = Callable[[TaskFacts], str]


def final_scores_table(grid: ResultsTable, task: TaskFacts) -> ReportTable:
    """Scores at the end of training; finetuning seeds, and so their spread, are tasks' alone."""
    return final_table(grid, task, spread=task.name != MASKED)


def headlines(grid: ResultsTable) -> list[ReportTable]:
    """The comparison in a row a system, and then again by every further pretraining seed."""
    again = pretrained_again(grid).items()
    return [headline(grid), *(headline(other, f"The same, pretrained with seed {seed}") for seed, other in again)]


def headline(grid: ResultsTable, title: str = "Zero-shot scores, and what a language costs") -> ReportTable:
    """The comparison in a row a system: means over the languages that count of what was run, and what came cheaper."""
    scores = [final_scores_table(grid, task) for task in grid.records.tasks if task.baselines]
    labels = ["best trivial answer", "embeddings as initialised", *(variant.system for variant in grid.variants)]
    layers = [_NOTHING, _NOTHING, *(_layers(grid, variant) for variant in grid.variants)]
    cheaper = [_NOTHING, _NOTHING, *(_cheaper(grid, variant) for variant in grid.variants)]
    means = (tuple(table.rows[line].cells[-1] for table in scores) for line in range(len(labels)))
    lines = zip(labels, layers, means, cheaper, strict=True)
    rows = (TableRow(label, (over, *by_task, less)) for label, over, by_task, less in lines)
    head = ("", "layers learned over", *(table.title for table in scores), "less compute than BL_BASE, masked tokens")
    return ReportTable("", title, head, (*rows,), (_COUNTED, _LESS))


def pretrained_again(grid: ResultsTable) -> dict[int, ResultsTable]:
    """Return the results of every further pretraining seed that BL_BASE was pretrained with, by seed."""
    seeds = dict(grid.pretraining_seeds()).get(grid.reference, [])
    return {seed: _of_seed(grid.records, seed) for seed in seeds if seed != grid.records.pretraining_seed}


def _of_seed(records: PaperRecords, seed: int) -> ResultsTable:
    """The grid of one pretraining seed, with those systems and tasks that it was run with."""
    cells = tuple(cell for cell in records.cells if cell.pretraining_seed == seed)
    in_source = tuple(cell for cell in records.source_cells if cell.pretraining_seed == seed)
    ran, judged = ({getattr(cell, name) for cell in (*cells, *in_source)} for name in ("system", "task"))
    changes = {
        "pretraining_seed": seed,
        "cells": cells,
        "source_cells": in_source,
        "systems": tuple(system for system in records.systems if system in ran),
        "tasks": tuple(task for task in records.tasks if task.name in judged),
    }
    return ResultsTable(records.model_copy(update=changes))


def _layers(grid: ResultsTable, variant: Variant) -> str:
    """Shared layers that embeddings are learned over, out of the primary's; BL_SMALL's primary has no others."""
    return f"{variant.depth} of {variant.depth if variant.system is System.BL_SMALL else grid.records.layers}"


def _cheaper(grid: ResultsTable, variant: Variant) -> str:
    """How many times less compute it takes to 95% of BL_BASE's masked tokens over the trivial answer."""
    if variant == grid.reference:
        return format_ratio(1.0)
    [task] = (task for task in grid.records.tasks if task.name == MASKED)
    return _ratio(grid.speed_up(variant, task, COMPUTE, TargetRule.OVER_BASELINE), format_ratio)


def claims(grid: ResultsTable, title: str = "The paper's claims, and what came out here") -> ReportTable:
    """A row a claim: what the paper has, then what we have by task."""
    rows = [row for variant in grid.mini_variants for row in _speed_ups(grid, variant)]
    rows += [_kept(grid, variant) for variant in grid.variants if variant != grid.reference]
    rows += [_in_source(grid), *_depths(grid)]
    head = ("claim", "the paper", *(task.title for task in grid.records.tasks))
    notes = (
        _COUNTED,
        "b is the best trivial answer, and b + 95% is b with 95% of what BL_BASE has over it. Languages in which "
        "BL_BASE is less than 5 points above b do not count.",
    )
    return ReportTable("", title, head, tuple(rows), notes)


def _speed_ups(grid: ResultsTable, variant: Variant) -> list[TableRow]:
    asked: list[tuple[str, CostMeasure, TargetRule]] = [
        ("times less compute to 95% of BL_BASE", COMPUTE, TargetRule.PAPER),
        ("times fewer seconds to 95% of BL_BASE", MEASURED_SECONDS, TargetRule.PAPER),
        ("times less compute to b + 95%", COMPUTE, TargetRule.OVER_BASELINE),
        ("times fewer seconds to b + 95%", MEASURED_SECONDS, TargetRule.OVER_BASELINE),
    ]
    rows = []
    for what, measure, goal in asked:
        printed = f"{SPEED_UPS[variant.system]}×" if (measure, goal) == (COMPUTE, TargetRule.PAPER) else _NOTHING

        def say(task: TaskFacts, measure: CostMeasure = measure, goal: TargetRule = goal) -> str:
            return _ratio(grid.speed_up(variant, task, measure, goal), format_ratio)

        rows.append(_row(grid, f"{variant.system}: {what}", printed, say))
    return rows


def _kept(grid: ResultsTable, variant: Variant) -> TableRow:
    printed = f"{RETAINED_PERCENT[variant.system]}%" if variant.system in RETAINED_PERCENT else "clearly below"
    what = f"{variant.system}: share of BL_BASE's final score"
    return _row(grid, what, printed, lambda task: _ratio(grid.retained(variant, task), percent))


def _ratio(ratios: Ratios, show: Callable[[float], str]) -> str:
    return format_mean(ratios.by_language, ratios.count, show)


def _in_source(grid: ResultsTable) -> TableRow:
    """How much higher MINIJOINT's primary scores than BL_BASE's in the source language, in points."""
    found = {
        (cell.system, cell.task): cell.scores
        for cell in grid.records.source_cells
        if cell.depth == grid.records.layers and cell.pretraining_seed == grid.records.pretraining_seed
    }

    def say(task: TaskFacts) -> str:
        ours, theirs = (found.get((system, task.name)) for system in (System.MINIJOINT, System.BL_BASE))
        return f"{100 * (ours.mean - theirs.mean):+.1f}" if ours and theirs else _NOTHING

    what = f"MINIJOINT's primary less BL_BASE's in {grid.records.source}, points"
    return _row(grid, what, f"{_PRINTED_IN_SOURCE:+.1f} (XNLI)", say)


def _depths(grid: ResultsTable) -> list[TableRow]:
    """The depth that is cheapest to the target, and the one that ends highest, by language."""
    if not grid.depths(System.MINIJOINT):
        return []
    rules: Mapping[str, Callable[[TaskFacts, str], int | None]] = {
        "cheapest to b + 95%": lambda task, language: _cheapest(grid, task, language),
        "best in the end": lambda task, language: _highest(grid, task, language),
    }

    def told(rule: Callable[[TaskFacts, str], int | None], task: TaskFacts) -> str:
        best = {language: rule(task, language) for language in grid.depth_languages(System.MINIJOINT, task)}
        return ", ".join(f"{language} {depth or _NOTHING}" for language, depth in best.items()) or _NOTHING

    return [
        _row(grid, f"MINIJOINT's depth that is {what}", "differs by language", lambda task, rule=rule: told(rule, task))
        for what, rule in rules.items()
    ]


def _cheapest(grid: ResultsTable, task: TaskFacts, language: str) -> int | None:
    found = {
        depth: grid.reached(Variant(System.MINIJOINT, depth), task, language, goal=TargetRule.OVER_BASELINE)
        for depth in grid.depths(System.MINIJOINT)
    }
    costs = {depth: each.estimate for depth, each in found.items() if not isinstance(each, MissingValue)}
    costs = {depth: cost for depth, cost in costs.items() if math.isfinite(cost)}
    return min(costs, key=lambda depth: costs[depth]) if costs and grid.is_informative(task, language) else None


def _highest(grid: ResultsTable, task: TaskFacts, language: str) -> int | None:
    found = {
        depth: grid.final(Variant(System.MINIJOINT, depth), task, language) for depth in grid.depths(System.MINIJOINT)
    }
    ends = {depth: scores.mean for depth, scores in found.items() if isinstance(scores, SeedScores)}
    return max(ends, key=lambda depth: ends[depth]) if ends and grid.is_informative(task, language) else None


def _row(grid: ResultsTable, claim: str, printed: str, say: Say) -> TableRow:
    return TableRow(claim, (printed, *(say(task) for task in grid.records.tasks)))

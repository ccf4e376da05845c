"""What the paper's report shows, in its order: each section has a heading, a sentence, tables and figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from lingraft.config.systems import System
from lingraft.reports.paper.canvas import Drawing
from lingraft.reports.paper.cells import ReportTable
from lingraft.reports.paper.check import averages_table, ratios_table
from lingraft.reports.paper.costs import retained_table, speed_up_table, target_time_table
from lingraft.reports.paper.curves import depth_curves, language_curves, system_curves
from lingraft.reports.paper.depths import final_by_depth, target_time_by_depth
from lingraft.reports.paper.equal import equal_table
from lingraft.reports.paper.failures import failures_table
from lingraft.reports.paper.figures import depth_drawings, speed_up_drawing, target_time_drawing
from lingraft.reports.paper.grid import COMPUTE, MEASURED_SECONDS, ResultsTable, TargetRule, Variant
from lingraft.reports.paper.tables import (
    final_spread_table,
    final_table,
    languages_table,
    pretraining_table,
    source_table,
    spent_table,
)


@dataclass(frozen=True)
class ReportSection:
    """A part of the report."""

    title: str
    prose: str
    tables: Sequence[ReportTable]
    drawings: Sequence[Drawing] = ()


def sections_of(grid: ResultsTable) -> list[ReportSection]:
    """All sections that the records have something for."""
    sections = [
        ReportSection("Languages", "What each language's embeddings were trained on.", languages_table(grid)),
        _scores(grid),
        _compute(grid),
        _equal_cost(grid),
        _depths(grid),
        ReportSection("The source language", "What a system costs the source language itself.", source_table(grid)),
        ReportSection(
            "Another pretraining",
            "How far a score moves if the model is pretrained again with another seed.",
            pretraining_table(grid),
        ),
        _all_numbers(grid),
        ReportSection(
            "The paper's own figures",
            "Computed from its printed tables by the code that computed ours: how far the arithmetic can be trusted.",
            [ratios_table(), averages_table()],
        ),
        ReportSection("What failed, and why", "By the numbers of the holes in the tables above.", failures_table(grid)),
    ]
    return [section for section in sections if section.tables]


def _scores(grid: ResultsTable) -> ReportSection:
    return ReportSection(
        "Scores at the end of training",
        "A language's embeddings are learned over the whole model (BL_BASE), over a model that is small throughout "
        "(BL_SMALL) or over an aligned mini-model (MINIPOST, MINIJOINT). With them, a model that learned the task in "
        "the source language only is tested in that language.",
        [*(final_table(grid, task) for task in grid.main_tasks), *retained_table(grid), spent_table(grid)],
    )


def _compute(grid: ResultsTable) -> ReportSection:
    return ReportSection(
        "Compute to near-maximal performance",
        "When a system first reaches 95% of the score that BL_BASE ends with, interpolated between checkpoints.",
        [
            *speed_up_table(grid),
            *(target_time_table(grid, task, "Table 3", _without_small(grid)) for task in grid.main_tasks),
        ],
        [*speed_up_drawing(grid), *system_curves(grid)],
    )


def _equal_cost(grid: ResultsTable) -> ReportSection:
    systems = _without_small(grid)
    return ReportSection(
        "At equal cost, by the clock, and over the trivial baseline",
        "Seconds are those of training where it ran. Where a trivial answer scores b, reaching 95% of BL_BASE says "
        "little; b + 95% of what BL_BASE has over b asks for more.",
        [
            *(equal_table(grid, task, measure) for task in grid.main_tasks for measure in (COMPUTE, MEASURED_SECONDS)),
            *(
                target_time_table(grid, task, "Table 3, measured", systems, MEASURED_SECONDS)
                for task in grid.main_tasks
            ),
            *(
                target_time_table(grid, task, "Table 3, over b", systems, goal=TargetRule.OVER_BASELINE)
                for task in grid.main_tasks
            ),
        ],
    )


def _depths(grid: ResultsTable) -> ReportSection:
    return ReportSection(
        "How deep the mini-model should be",
        "A shallow mini-model is cheaper; a deeper one may end higher. The best depth depends on the language.",
        [
            table
            for system in _systems_by_depth(grid)
            for table in (*target_time_by_depth(grid, system), *final_by_depth(grid, system))
        ],
        [
            each
            for system in _systems_by_depth(grid)
            for each in (*depth_drawings(grid, system), *depth_curves(grid, system))
        ],
    )


def _all_numbers(grid: ResultsTable) -> ReportSection:
    tasks = grid.records.tasks
    return ReportSection(
        "All scores, costs and intervals",
        "All tasks, those of the appendix too, and all systems.",
        [
            *(final_spread_table(grid, task) for task in tasks),
            *(target_time_table(grid, task, "Table A1", grid.variants) for task in tasks),
            *(target_time_table(grid, task, "Table A4", grid.variants, intervals=True) for task in tasks),
            *(
                table
                for system in _systems_by_depth(grid)
                for table in target_time_by_depth(grid, system, intervals=True)
            ),
        ],
        [each for task in tasks for each in (*target_time_drawing(grid, task), *language_curves(grid, task))],
    )


def _without_small(grid: ResultsTable) -> list[Variant]:
    """The rows of table 3: the lower bound is in table A1."""
    return [variant for variant in grid.variants if variant.system is not System.BL_SMALL]


def _systems_by_depth(grid: ResultsTable) -> list[System]:
    return [system for system in grid.records.systems if grid.depths(system)]

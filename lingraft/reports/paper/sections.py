"""What the paper's report shows, in its order: each section has a heading, a sentence, tables and figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from lingraft.config.systems import System
from lingraft.reports.paper.canvas import Drawing
from lingraft.reports.paper.cells import Table
from lingraft.reports.paper.check import averages_table, ratios_table
from lingraft.reports.paper.costs import near_table, retained_table, speed_up_table
from lingraft.reports.paper.curves import depth_curves, language_curves, system_curves
from lingraft.reports.paper.depths import final_by_depth, near_by_depth
from lingraft.reports.paper.equal import equal_table
from lingraft.reports.paper.failures import failures_table
from lingraft.reports.paper.figures import depth_drawings, near_drawing, speed_up_drawing
from lingraft.reports.paper.grid import COMPUTE, MEASURED, ResultsTable, TargetRule, Variant
from lingraft.reports.paper.tables import (
    final_spread_table,
    final_table,
    languages_table,
    pretraining_table,
    source_table,
    spent_table,
)


@dataclass(frozen=True)
class Section:
    """A part of the report."""

    title: str
    prose: str
    tables: Sequence[Table]
    drawings: Sequence[Drawing] = ()


def sections_of(grid: ResultsTable) -> list[Section]:
    """All sections that the records have something for."""
    sections = [
        Section("Languages", "What each language's embeddings were trained on.", languages_table(grid)),
        _scores(grid),
        _compute(grid),
        _otherwise(grid),
        _depths(grid),
        Section("The source language", "What a system costs the source language itself.", source_table(grid)),
        Section(
            "Another pretraining",
            "How far a score moves if the model is pretrained again with another seed.",
            pretraining_table(grid),
        ),
        _everything(grid),
        Section(
            "The paper's own figures",
            "Computed from its printed tables by the code that computed ours: how far the arithmetic can be trusted.",
            [ratios_table(), averages_table()],
        ),
        Section("What failed, and why", "By the numbers of the holes in the tables above.", failures_table(grid)),
    ]
    return [section for section in sections if section.tables]


def _scores(grid: ResultsTable) -> Section:
    return Section(
        "Scores at the end of training",
        "A language's embeddings are learned over the whole model (BL_BASE), over a model that is small throughout "
        "(BL_SMALL) or over an aligned mini-model (MINIPOST, MINIJOINT). With them, a model that learned the task in "
        "the source language only is tested in that language.",
        [*(final_table(grid, task) for task in grid.main_tasks), *retained_table(grid), spent_table(grid)],
    )


def _compute(grid: ResultsTable) -> Section:
    return Section(
        "Compute to near-maximal performance",
        "When a system first reaches 95% of the score that BL_BASE ends with, interpolated between checkpoints.",
        [
            *speed_up_table(grid),
            *(near_table(grid, task, "Table 3", _without_small(grid)) for task in grid.main_tasks),
        ],
        [*speed_up_drawing(grid), *system_curves(grid)],
    )


def _otherwise(grid: ResultsTable) -> Section:
    systems = _without_small(grid)
    return Section(
        "At equal cost, by the clock, and over the trivial baseline",
        "Seconds are those of training where it ran. Where a trivial answer scores b, reaching 95% of BL_BASE says "
        "little; b + 95% of what BL_BASE has over b asks for more.",
        [
            *(equal_table(grid, task, measure) for task in grid.main_tasks for measure in (COMPUTE, MEASURED)),
            *(near_table(grid, task, "Table 3, measured", systems, MEASURED) for task in grid.main_tasks),
            *(near_table(grid, task, "Table 3, over b", systems, goal=TargetRule.OVER_BASELINE) for task in grid.main_tasks),
        ],
    )


def _depths(grid: ResultsTable) -> Section:
    return Section(
        "How deep the mini-model should be",
        "A shallow mini-model is cheaper; a deeper one may end higher. The best depth depends on the language.",
        [table for system in _deep(grid) for table in (*near_by_depth(grid, system), *final_by_depth(grid, system))],
        [each for system in _deep(grid) for each in (*depth_drawings(grid, system), *depth_curves(grid, system))],
    )


def _everything(grid: ResultsTable) -> Section:
    tasks = grid.records.tasks
    return Section(
        "All scores, costs and intervals",
        "All tasks, those of the appendix too, and all systems.",
        [
            *(final_spread_table(grid, task) for task in tasks),
            *(near_table(grid, task, "Table A1", grid.variants) for task in tasks),
            *(near_table(grid, task, "Table A4", grid.variants, intervals=True) for task in tasks),
            *(table for system in _deep(grid) for table in near_by_depth(grid, system, intervals=True)),
        ],
        [each for task in tasks for each in (*near_drawing(grid, task), *language_curves(grid, task))],
    )


def _without_small(grid: ResultsTable) -> list[Variant]:
    """The rows of table 3: the lower bound is in table A1."""
    return [variant for variant in grid.variants if variant.system is not System.BL_SMALL]


def _deep(grid: ResultsTable) -> list[System]:
    return [system for system in grid.records.systems if grid.depths(system)]

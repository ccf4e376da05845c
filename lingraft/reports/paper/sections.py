"""What the paper's report shows, in its order: each section has a heading, a sentence, tables and figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from lingraft.config.systems import System
from lingraft.reports.paper.canvas import Drawing
from lingraft.reports.paper.cells import ReportTable
from lingraft.reports.paper.cost_tables import retained_table, speed_up_table, target_time_table
from lingraft.reports.paper.curves import depth_curves, language_curves, system_curves
from lingraft.reports.paper.depth_tables import final_by_depth, target_time_by_depth
from lingraft.reports.paper.equal_cost import equal_table
from lingraft.reports.paper.failures import failures_table
from lingraft.reports.paper.figures import depth_drawings, speed_up_drawing, target_time_drawing
from lingraft.reports.paper.published_check import averages_table, ratios_table
from lingraft.reports.paper.results_table import COMPUTE, MEASURED_SECONDS, ResultsTable, TargetRule, Variant
from lingraft.reports.paper.score_tables import (
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


def sections_of(results: ResultsTable) -> list[ReportSection]:
    """All sections that the records have something for."""
    sections = [
        ReportSection("Languages", "What each language's embeddings were trained on.", languages_table(results)),
        _scores(results),
        _compute(results),
        _equal_cost(results),
        _depths(results),
        ReportSection("The source language", "What a system costs the source language itself.", source_table(results)),
        ReportSection(
            "Another pretraining",
            "How far a score moves if the model is pretrained again with another seed.",
            pretraining_table(results),
        ),
        _all_numbers(results),
        ReportSection(
            "The paper's own figures",
            "Computed from its printed tables by the code that computed ours: how far the arithmetic can be trusted.",
            [ratios_table(), averages_table()],
        ),
        ReportSection(
            "What failed, and why", "By the numbers of the holes in the tables above.", failures_table(results)
        ),
    ]
    return [section for section in sections if section.tables]


def _scores(results: ResultsTable) -> ReportSection:
    return ReportSection(
        "Scores at the end of training",
        "A language's embeddings are learned over the whole model (BL_BASE), over a model that is small throughout "
        "(BL_SMALL) or over an aligned mini-model (MINIPOST, MINIJOINT). With them, a model that learned the task in "
        "the source language only is tested in that language.",
        [*(final_table(results, task) for task in results.main_tasks), *retained_table(results), spent_table(results)],
    )


def _compute(results: ResultsTable) -> ReportSection:
    return ReportSection(
        "Compute to near-maximal performance",
        "When a system first reaches 95% of the score that BL_BASE ends with, interpolated between checkpoints.",
        [
            *speed_up_table(results),
            *(target_time_table(results, task, "Table 3", _without_small(results)) for task in results.main_tasks),
        ],
        [*speed_up_drawing(results), *system_curves(results)],
    )


def _equal_cost(results: ResultsTable) -> ReportSection:
    systems = _without_small(results)
    return ReportSection(
        "At equal cost, by the clock, and over the trivial baseline",
        "Seconds are those of training where it ran. Where a trivial answer scores b, reaching 95% of BL_BASE says "
        "little; b + 95% of what BL_BASE has over b asks for more.",
        [
            *(
                equal_table(results, task, measure)
                for task in results.main_tasks
                for measure in (COMPUTE, MEASURED_SECONDS)
            ),
            *(
                target_time_table(results, task, "Table 3, measured", systems, MEASURED_SECONDS)
                for task in results.main_tasks
            ),
            *(
                target_time_table(results, task, "Table 3, over b", systems, goal=TargetRule.OVER_BASELINE)
                for task in results.main_tasks
            ),
        ],
    )


def _depths(results: ResultsTable) -> ReportSection:
    return ReportSection(
        "How deep the mini-model should be",
        "A shallow mini-model is cheaper; a deeper one may end higher. The best depth depends on the language.",
        [
            table
            for system in _systems_by_depth(results)
            for table in (*target_time_by_depth(results, system), *final_by_depth(results, system))
        ],
        [
            each
            for system in _systems_by_depth(results)
            for each in (*depth_drawings(results, system), *depth_curves(results, system))
        ],
    )


def _all_numbers(results: ResultsTable) -> ReportSection:
    tasks = results.records.tasks
    return ReportSection(
        "All scores, costs and intervals",
        "All tasks, those of the appendix too, and all systems.",
        [
            *(final_spread_table(results, task) for task in tasks),
            *(target_time_table(results, task, "Table A1", results.variants) for task in tasks),
            *(target_time_table(results, task, "Table A4", results.variants, intervals=True) for task in tasks),
            *(
                table
                for system in _systems_by_depth(results)
                for table in target_time_by_depth(results, system, intervals=True)
            ),
        ],
        [each for task in tasks for each in (*target_time_drawing(results, task), *language_curves(results, task))],
    )


def _without_small(results: ResultsTable) -> list[Variant]:
    """The rows of table 3: the lower bound is in table A1."""
    return [variant for variant in results.variants if variant.system is not System.BL_SMALL]


def _systems_by_depth(results: ResultsTable) -> list[System]:
    return [system for system in results.records.systems if results.depths(system)]

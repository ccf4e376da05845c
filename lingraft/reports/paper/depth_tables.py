"""The paper's tables by depth of the mini-model: 4 and A4 (time to near-maximal performance), A3 (final scores)."""

from collections.abc import Mapping, Sequence

from lingraft.config.systems import System
from lingraft.reports.paper.cells import (
    Footnotes,
    ReportTable,
    TableRow,
    TimeUnit,
    format_mean,
    format_points,
    format_reached,
    format_score,
)
from lingraft.reports.paper.records import TaskFacts
from lingraft.reports.paper.results_table import MissingValue, ResultsTable, Variant
from lingraft.stages.results import SeedScores


def target_time_by_depth(results: ResultsTable, system: System, intervals: bool = False) -> list[ReportTable]:
    """Table 4, or with intervals A4: a row per language and task, a column per depth; none without several depths."""
    notes = Footnotes(results.reasons)
    depths = results.depths(system)
    found = {
        (task.title, notes.language_label(results, task, language)): [
            results.reached(Variant(system, depth), task, language) for depth in depths
        ]
        for task in results.records.tasks
        for language in results.depth_languages(system, task)
    }
    reached = [each for row in found.values() for each in row if not isinstance(each, MissingValue)]
    unit = TimeUnit.fitting(each.estimate for each in reached)
    write = unit.interval if intervals else lambda each: unit.show(each.estimate)
    if intervals:
        notes.add("In brackets, the checkpoints before and after.")
    rows = [
        TableRow(f"{language} {title}", tuple(format_reached(each, write, notes) for each in row))
        for (title, language), row in found.items()
    ]
    title = f"V100-{unit.name} to near-maximal performance, {system} by depth"
    return [ReportTable("Table A4" if intervals else "Table 4", title, _head(depths), tuple(rows), notes.lines)] * bool(
        rows
    )


def final_by_depth(results: ResultsTable, system: System) -> list[ReportTable]:
    """Table A3: final scores by depth, mean over the languages that were run at several; BL_BASE last."""
    notes = Footnotes(results.reasons)
    depths = results.depths(system)
    variants = [*(Variant(system, depth) for depth in depths), results.reference]
    found = {
        task.name: {
            language: [results.final(variant, task, language) for variant in variants]
            for language in results.depth_languages(system, task)
        }
        for task in results.records.tasks
    }
    notes.describe_seeds(scores for by_language in found.values() for row in by_language.values() for scores in row)
    rows = []
    for task in results.records.tasks:
        by_language = found[task.name]
        named = {language: notes.language_label(results, task, language) for language in by_language}
        if len(named) > 1:
            rows.append(TableRow(f"{task.title} ({', '.join(named.values())})", _means(results, task, by_language)))
        rows += [
            TableRow(f"{task.title} ({named[language]})", tuple(format_score(scores, notes) for scores in row), "quiet")
            for language, row in by_language.items()
        ]
    title = f"scores at the end of training, {system} by depth, in percent"
    head = (*_head(depths), str(System.BL_BASE))
    return [ReportTable("Table A3", title, head, tuple(rows), notes.lines)] * bool(rows)


def _head(depths: Sequence[int]) -> tuple[str, ...]:
    return ("depth", *map(str, depths))


def _means(
    results: ResultsTable, task: TaskFacts, rows: Mapping[str, Sequence[SeedScores | MissingValue]]
) -> tuple[str, ...]:
    """The mean of each column over the languages that count."""
    return tuple(
        format_mean(
            {
                language: scores.mean
                for language, scores in zip(rows, column, strict=True)
                if not isinstance(scores, MissingValue) and results.is_informative(task, language)
            },
            len(column),
            format_points,
        )
        for column in zip(*rows.values(), strict=True)
    )

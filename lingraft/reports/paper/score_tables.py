"""The paper's tables of scores: 1 (languages), 2, A2, A3 (end of training), 5 (source language), A5 (pretraining)."""

from collections.abc import Mapping, Sequence

from lingraft.config.systems import System
from lingraft.reports.paper.records import Cell, SourceCell, TaskFacts
from lingraft.reports.paper.report_table import (
    Footnotes,
    ReportTable,
    TableRow,
    TaskTable,
    format_mean,
    format_points,
    format_spread,
    missing_mark,
)
from lingraft.reports.paper.results_table import SYSTEM_ORDER, MissingValue, ResultsTable, Variant
from lingraft.stages.results import SeedScores
from lingraft.tables import counted, megabytes

_UNKNOWN = "?"
_DEVIATION = "± is the standard deviation over finetuning seeds."


def languages_table(results: ResultsTable) -> list[ReportTable]:
    """Return table 1: what is known of the languages; nothing where the records say nothing."""
    rows = [
        TableRow(
            facts.language + (" (source)" if facts.language == results.records.source else ""),
            (
                _UNKNOWN if facts.text_bytes is None else megabytes(facts.text_bytes),
                facts.word_order or _UNKNOWN,
                *(_UNKNOWN if share is None else f"{share:.2f}" for share in (facts.syntactic, facts.phylogenetic)),
            ),
        )
        for facts in results.records.languages
    ]
    head = ("language", "text, MB", "word order", "syntactic distance", "phylogenetic distance")
    notes = ["Text is what the language's embeddings were trained on. Distances are from the source language."]
    if any(_UNKNOWN in row.cells for row in rows):
        notes.append(f"{_UNKNOWN}: not recorded.")
    return [ReportTable("Table 1", "languages", head, tuple(rows), tuple(notes))] if rows else []


def final_table(results: ResultsTable, task: TaskFacts, spread: bool = False) -> ReportTable:
    """Return one task's part of table 2, scores at the end of training; with spreads over finetuning seeds, of A2."""
    table = TaskTable(results, task)
    write = format_spread if spread else table.notes.score
    found = {
        variant: {language: results.final(variant, task, language) for language in task.languages}
        for variant in results.variants
    }
    table.notes.describe_seeds(scores for row in found.values() for scores in row.values())
    if spread:
        table.notes.add(_DEVIATION)
    baselines = {language: results.baseline(task, language) for language in task.languages}
    table.add_row(task.trivial or "trivial baseline", baselines, format_points, float, tone="quiet")
    initial = {language: results.initial(results.reference, task, language) for language in task.languages}
    table.add_row(f"{results.reference.system}, as initialised", initial, write, _mean, tone="quiet")
    for variant, row in found.items():
        table.add_row(variant.system, row, write, _mean)
    return table.finished("Table A2" if spread else "Table 2", f"{task.metric} in percent")


def _mean(scores: SeedScores) -> float:
    return scores.mean


def final_by_depth(results: ResultsTable, system: System) -> list[ReportTable]:
    """Return table A3: final scores by depth, mean over the languages that were run at several; BL_BASE last."""
    notes = Footnotes(results)
    depths = results.depths(system)
    variants = [*(Variant(system, depth) for depth in depths), results.reference]
    found = [
        {
            language: [results.final(variant, task, language) for variant in variants]
            for language in results.depth_languages(system, task)
        }
        for task in results.records.tasks
    ]
    notes.describe_seeds(scores for by_language in found for row in by_language.values() for scores in row)
    rows = []
    for task, by_language in zip(results.records.tasks, found, strict=True):
        named = {language: notes.language_label(task, language) for language in by_language}
        if len(named) > 1:
            rows.append(TableRow(f"{task.title} ({', '.join(named.values())})", _means(results, task, by_language)))
        rows += [
            TableRow(f"{task.title} ({named[language]})", tuple(notes.cell(each, notes.score) for each in row), "quiet")
            for language, row in by_language.items()
        ]
    title = f"scores at the end of training, {system} by depth, in percent"
    head = ("depth", *map(str, depths), str(System.BL_BASE))
    return [ReportTable("Table A3", title, head, tuple(rows), notes.lines)] if rows else []


def _means(
    results: ResultsTable, task: TaskFacts, rows: Mapping[str, Sequence[SeedScores | MissingValue]]
) -> tuple[str, ...]:
    """Return the mean of each column over the languages that count."""
    means = []
    for column in zip(*rows.values(), strict=True):
        scores = results.counted(task, dict(zip(rows, column, strict=True)))
        means.append(format_mean({language: each.mean for language, each in scores.items()}, len(rows), format_points))
    return tuple(means)


def source_table(results: ResultsTable) -> list[ReportTable]:
    """Return table 5: scores in the source language, of whole and mini-models; nothing if none was recorded."""
    found = {
        (Variant(cell.system, cell.depth), cell.task): cell.scores or MissingValue.failed(cell.failed or "")
        for cell in results.records.source_cells
        if cell.pretraining_seed == results.records.pretraining_seed
    }
    if not found:
        return []
    notes = Footnotes(results)
    tasks = results.records.tasks
    notes.describe_seeds(found.values())
    notes.add(_DEVIATION)
    variants = sorted({variant for variant, _ in found}, key=lambda of: (SYSTEM_ORDER.index(of.system), -of.depth))
    rows = []
    for variant in variants:
        scores = (found.get((variant, task.name), MissingValue("not run")) for task in tasks)
        label = f"{variant.system}, {counted(variant.depth, 'layer')}"
        rows.append(TableRow(label, tuple(notes.cell(each, format_spread) for each in scores)))
    head = ("system", *(f"{task.title}, {task.metric}" for task in tasks))
    title = f"scores in the source language, {results.records.source}, in percent"
    return [ReportTable("Table 5", title, head, tuple(rows), notes.lines)]


def pretraining_table(results: ResultsTable) -> list[ReportTable]:
    """Return table A5: the same system pretrained with several seeds; nothing if none was."""
    return [_pretrainings(results, variant, seeds) for variant, seeds in results.pretraining_seeds()]


def _pretrainings(results: ResultsTable, variant: Variant, seeds: Sequence[int]) -> ReportTable:
    notes = Footnotes(results)
    main = results.records.pretraining_seed
    columns = [
        (task, language)
        for task in results.records.tasks
        for language in task.languages
        if any(isinstance(results.cell(variant, task, language, seed), Cell) for seed in seeds if seed != main)
    ]
    found = {seed: [results.final(variant, task, language, seed) for task, language in columns] for seed in seeds}
    notes.describe_seeds(scores for row in found.values() for scores in row)
    notes.add(f"Each row is a pretraining of its own. {_DEVIATION}")
    rows = [
        TableRow(
            f"seed {seed}" + (" (all other tables)" if seed == main else ""),
            tuple(notes.cell(scores, format_spread) for scores in row),
        )
        for seed, row in found.items()
    ]
    head = ("pretraining", *(f"{task.title} {language}" for task, language in columns))
    title = f"{variant.system} over {counted(variant.depth, 'layer')}, pretrained {len(seeds)} times; scores in percent"
    return ReportTable("Table A5", title, head, tuple(rows), notes.lines)


def failures_table(results: ResultsTable) -> list[ReportTable]:
    """Return a row per reason why cells failed, with the reasons in full below; nothing where nothing failed."""
    records = results.records
    by_reason: dict[MissingValue, list[Cell | SourceCell]] = {}
    cells: tuple[Cell | SourceCell, ...] = (*records.cells, *records.source_cells)
    for cell in cells:
        if cell.failed is not None:
            by_reason.setdefault(MissingValue.failed(cell.failed), []).append(cell)
    numbered = sorted((results.reason_number(reason), reason, cells) for reason, cells in by_reason.items())
    rows = []
    for number, _, failed in numbered:
        systems = [system for system in SYSTEM_ORDER if any(cell.system is system for cell in failed)]
        languages = dict.fromkeys(cell.language if isinstance(cell, Cell) else records.source for cell in failed)
        rows.append(TableRow(missing_mark(number), (str(len(failed)), ", ".join(systems), ", ".join(languages))))
    # On one line, so that Markdown keeps a reason in one paragraph.
    notes = [f"{missing_mark(number)}: {' '.join(reason.reason.split())}." for number, reason, _ in numbered]
    head = ("number", "cells", "systems", "languages")
    return [ReportTable("", "Cells that failed, by reason", head, tuple(rows), tuple(notes))] if rows else []

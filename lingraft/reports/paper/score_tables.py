"""The paper's tables of scores: 1 (languages), 2 and A2 (end of training), 5 (source language), A5 (pretraining)."""

from collections.abc import Callable, Sequence
from itertools import product
from statistics import mean

from lingraft.model.flops import V100_FLOPS_PER_S
from lingraft.reports.formatting import counted, megabytes
from lingraft.reports.paper.cells import (
    MEAN,
    Footnotes,
    ReportTable,
    TableRow,
    TimeUnit,
    format_flops,
    format_mean,
    format_points,
    format_score,
    format_spread,
)
from lingraft.reports.paper.records import CurvePoint, TaskFacts
from lingraft.reports.paper.results_table import SYSTEM_ORDER, MissingValue, ResultsTable, Variant
from lingraft.stages.results import SeedScores

Write = Callable[[SeedScores | MissingValue, Footnotes], str]
_UNKNOWN = "?"
_DEVIATION = "± is the standard deviation over finetuning seeds."


def languages_table(results: ResultsTable) -> list[ReportTable]:
    """Table 1: what is known of the languages; nothing where the records say nothing."""
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
    notes = [f"{_UNKNOWN}: not recorded."] if any(_UNKNOWN in row.cells for row in rows) else []
    notes = ["Text is what the language's embeddings were trained on. Distances are from the source language.", *notes]
    return [ReportTable("Table 1", "languages", head, tuple(rows), tuple(notes))] if rows else []


def spent_table(results: ResultsTable) -> ReportTable:
    """What a whole adaptation took, mean over a system's runs: the costs beside table 2."""
    notes = Footnotes(results.reasons)
    notes.add("Means over the runs that came to their end. FLOPs are by equation A3; a V100 does 30 TFLOP/s.")
    ends = {variant: _ends(results, variant) for variant in results.variants}
    unit = TimeUnit.fitting(point.flops / V100_FLOPS_PER_S for points in ends.values() for point in points)
    measured = TimeUnit.fitting(point.elapsed_s for points in ends.values() for point in points)
    rows = [
        TableRow(variant.system, (str(variant.depth), *_spent(points, unit, measured, notes)))
        for variant, points in ends.items()
    ]
    if results.records.machine:
        notes.add(f"Measured on {results.records.machine}, by the clock of training alone.")
    head = ("system", "shared layers", "updates", "FLOPs", f"V100-{unit.name}", f"measured, {measured.name}")
    return ReportTable("Table 2", "the cost of adapting one language", head, tuple(rows), notes.lines)


def _ends(results: ResultsTable, variant: Variant) -> list[CurvePoint]:
    """The last checkpoint of each language; tasks share a run, so that any of them will do."""
    found = {
        language: cell.points[-1]
        for task in results.records.tasks
        for language in task.languages
        if not isinstance(cell := results.cell(variant, task, language), MissingValue)
    }
    return list(found.values())


def _spent(ends: Sequence[CurvePoint], unit: TimeUnit, measured: TimeUnit, notes: Footnotes) -> list[str]:
    if not ends:
        return [notes.missing(MissingValue("no run came to its end"))] * 4
    flops = mean(end.flops for end in ends)
    return [
        f"{mean(end.step for end in ends):,.0f}",
        format_flops(flops),
        unit.show(flops / V100_FLOPS_PER_S),
        measured.show(mean(end.elapsed_s for end in ends)),
    ]


def final_table(results: ResultsTable, task: TaskFacts) -> ReportTable:
    """One task's part of table 2: scores at the end of training."""
    return _scores(results, task, "Table 2", format_score)


def final_spread_table(results: ResultsTable, task: TaskFacts) -> ReportTable:
    """One task's part of table A2: the same with the standard deviation over finetuning seeds."""
    return _scores(results, task, "Table A2", format_spread, _DEVIATION)


def _scores(results: ResultsTable, task: TaskFacts, number: str, write: Write, *remarks: str) -> ReportTable:
    notes = Footnotes(results.reasons)
    found = {
        variant: [results.final(variant, task, language) for language in task.languages] for variant in results.variants
    }
    notes.describe_seeds(scores for row in found.values() for scores in row)
    for remark in remarks:
        notes.add(remark)
    rows = [
        _baseline_row(results, task, notes),
        _initial_row(results, task, write, notes),
        *(TableRow(variant.system, _line(results, task, row, write, notes)) for variant, row in found.items()),
    ]
    head = ("system", *(notes.language_label(results, task, language) for language in task.languages), MEAN)
    return ReportTable(number, f"{task.title}, {task.metric} in percent", head, tuple(rows), notes.lines)


def _line(
    results: ResultsTable, task: TaskFacts, found: Sequence[SeedScores | MissingValue], write: Write, notes: Footnotes
) -> tuple[str, ...]:
    """Cells of one row, and their mean over the languages that count."""
    counted = {
        language: scores.mean
        for language, scores in zip(task.languages, found, strict=True)
        if not isinstance(scores, MissingValue) and results.is_informative(task, language)
    }
    return (*(write(scores, notes) for scores in found), format_mean(counted, len(task.languages), format_points))


def _baseline_row(results: ResultsTable, task: TaskFacts, notes: Footnotes) -> TableRow:
    baselines = {language: results.baseline(task, language) for language in task.languages}
    cells = [
        notes.missing(found) if isinstance(found, MissingValue) else format_points(found)
        for found in baselines.values()
    ]
    counted = {
        language: found
        for language, found in baselines.items()
        if not isinstance(found, MissingValue) and results.is_informative(task, language)
    }
    return TableRow(
        task.trivial or "trivial baseline", (*cells, format_mean(counted, len(task.languages), format_points)), "quiet"
    )


def _initial_row(results: ResultsTable, task: TaskFacts, write: Write, notes: Footnotes) -> TableRow:
    found = [results.initial(results.reference, task, language) for language in task.languages]
    return TableRow(f"{results.reference.system}, as initialised", _line(results, task, found, write, notes), "quiet")


def source_table(results: ResultsTable) -> list[ReportTable]:
    """Table 5: scores in the source language, of whole models and of mini-models; nothing if none was recorded."""
    seed = results.records.pretraining_seed
    cells = {
        (Variant(cell.system, cell.depth), cell.task): cell
        for cell in results.records.source_cells
        if cell.pretraining_seed == seed
    }
    found = {
        key: cell.scores if cell.scores is not None else MissingValue.failed(cell.failed or "")
        for key, cell in cells.items()
    }
    notes = Footnotes(results.reasons)
    tasks = results.records.tasks
    notes.describe_seeds(found.values())
    notes.add(_DEVIATION)
    rows = [
        TableRow(
            f"{variant.system}, {counted(variant.depth, 'layer')}",
            tuple(format_spread(found.get((variant, task.name), MissingValue("not run")), notes) for task in tasks),
        )
        for variant in sorted({variant for variant, _ in found}, key=_paper_order)
    ]
    head = ("system", *(f"{task.title}, {task.metric}" for task in tasks))
    title = f"scores in the source language, {results.records.source}, in percent"
    return [ReportTable("Table 5", title, head, tuple(rows), notes.lines)] if rows else []


def _paper_order(variant: Variant) -> tuple[int, int]:
    return SYSTEM_ORDER.index(variant.system), -variant.depth


def pretraining_table(results: ResultsTable) -> list[ReportTable]:
    """Table A5: the same system pretrained with several seeds; nothing if none was."""
    return [_pretrainings(results, variant, seeds) for variant, seeds in results.pretraining_seeds()]


def _pretrainings(results: ResultsTable, variant: Variant, seeds: Sequence[int]) -> ReportTable:
    notes = Footnotes(results.reasons)
    main = results.records.pretraining_seed
    columns = [
        (task, language)
        for task in results.records.tasks
        for language in task.languages
        if any(
            not isinstance(results.cell(variant, task, language, seed), MissingValue) for seed in seeds if seed != main
        )
    ]
    found = {
        (seed, task.name, language): results.final(variant, task, language, seed)
        for seed, (task, language) in product(seeds, columns)
    }
    notes.describe_seeds(found.values())
    notes.add(f"Each row is a pretraining of its own. {_DEVIATION}")
    rows = [
        TableRow(
            f"seed {seed}" + (" (all other tables)" if seed == main else ""),
            tuple(format_spread(found[seed, task.name, language], notes) for task, language in columns),
        )
        for seed in seeds
    ]
    head = ("pretraining", *(f"{task.title} {language}" for task, language in columns))
    title = f"{variant.system} over {counted(variant.depth, 'layer')}, pretrained {len(seeds)} times; scores in percent"
    return ReportTable("Table A5", title, head, tuple(rows), notes.lines)

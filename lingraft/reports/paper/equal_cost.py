"""Scores of all systems when each has spent the same: as much as the one that spends least in all."""

from lingraft.reports.paper.cells import MEAN, Footnotes, ReportTable, TableRow, TimeUnit, format_mean, format_points
from lingraft.reports.paper.records import Cell, TaskFacts
from lingraft.reports.paper.results_table import COMPUTE, CostMeasure, MissingValue, ResultsTable, Variant


def equal_table(results: ResultsTable, task: TaskFacts, measure: CostMeasure = COMPUTE) -> ReportTable:
    """One task's scores at equal compute, or at equal seconds; interpolated between checkpoints.

    Args:
        results: the run.
        task: one of its tasks.
        measure: what is equal.
    """
    notes = Footnotes(results.reasons)
    budgets = {language: _budget(results, task, language, measure) for language in task.languages}
    unit = TimeUnit.fitting(budgets.values())
    spent = [unit.show(budget) if budget else notes.missing(MissingValue("not run")) for budget in budgets.values()]
    rows = [TableRow(f"{measure.prefix}{unit.name} spent", (*spent, "–"), "quiet")]
    for variant in results.variants:
        found = {
            name: _score(results=results, variant=variant, task=task, language=name, measure=measure, budget=budget)
            for name, budget in budgets.items()
        }
        cells = [
            notes.missing(score) if isinstance(score, MissingValue) else format_points(score)
            for score in found.values()
        ]
        counted = {
            language: score
            for language, score in found.items()
            if not isinstance(score, MissingValue) and results.is_informative(task, language)
        }
        rows.append(TableRow(variant.system, (*cells, format_mean(counted, len(task.languages), format_points))))
    notes.add("In each language, every system has spent what the one that spends least spends in all.")
    head = ("system", *(notes.language_label(results, task, language) for language in task.languages), MEAN)
    what = "compute" if measure is COMPUTE else "seconds"
    return ReportTable("", f"{task.title}, {task.metric} in percent at equal {what}", head, tuple(rows), notes.lines)


def _budget(results: ResultsTable, task: TaskFacts, language: str, measure: CostMeasure) -> float:
    """The least that a system spends in all; 0 where none came to its end."""
    cells = [results.cell(variant, task, language) for variant in results.variants]
    return min((measure.spent(cell.points[-1]) for cell in cells if isinstance(cell, Cell)), default=0.0)


def _score(
    results: ResultsTable, variant: Variant, task: TaskFacts, language: str, measure: CostMeasure, budget: float
) -> float | MissingValue:
    cell = results.cell(variant, task, language)
    if isinstance(cell, MissingValue):
        return cell
    if measure.spent(cell.points[0]) > budget:
        return MissingValue("no checkpoint was evaluated that early")
    return cell.curve(measure.spent).at(budget)

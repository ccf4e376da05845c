"""Scores of all systems when each has spent the same: as much as the one that spends least in all."""

from lingraft.reports.paper.cells import MEAN, Footnotes, ReportTable, TableRow, TimeUnit, format_mean, format_points
from lingraft.reports.paper.grid import COMPUTE, CostMeasure, MissingValue, ResultsTable, Variant
from lingraft.reports.paper.records import Cell, TaskFacts


def equal_table(grid: ResultsTable, task: TaskFacts, measure: CostMeasure = COMPUTE) -> ReportTable:
    """One task's scores at equal compute, or at equal seconds; interpolated between checkpoints.

    Args:
        grid: the run.
        task: one of its tasks.
        measure: what is equal.
    """
    notes = Footnotes(grid.reasons)
    budgets = {language: _budget(grid, task, language, measure) for language in task.languages}
    unit = TimeUnit.fitting(budgets.values())
    spent = [unit.show(budget) if budget else notes.missing(MissingValue("not run")) for budget in budgets.values()]
    rows = [TableRow(f"{measure.prefix}{unit.name} spent", (*spent, "–"), "quiet")]
    for variant in grid.variants:
        found = {name: _score(grid, variant, task, name, measure, budget) for name, budget in budgets.items()}
        cells = [
            notes.missing(score) if isinstance(score, MissingValue) else format_points(score)
            for score in found.values()
        ]
        counted = {
            language: score
            for language, score in found.items()
            if not isinstance(score, MissingValue) and grid.is_informative(task, language)
        }
        rows.append(TableRow(variant.system, (*cells, format_mean(counted, len(task.languages), format_points))))
    notes.add("In each language, every system has spent what the one that spends least spends in all.")
    head = ("system", *(notes.language_label(grid, task, language) for language in task.languages), MEAN)
    what = "compute" if measure is COMPUTE else "seconds"
    return ReportTable("", f"{task.title}, {task.metric} in percent at equal {what}", head, tuple(rows), notes.lines)


def _budget(grid: ResultsTable, task: TaskFacts, language: str, measure: CostMeasure) -> float:
    """The least that a system spends in all; 0 where none came to its end."""
    cells = [grid.cell(variant, task, language) for variant in grid.variants]
    return min((measure.spent(cell.points[-1]) for cell in cells if isinstance(cell, Cell)), default=0.0)


def _score(
    grid: ResultsTable, variant: Variant, task: TaskFacts, language: str, measure: CostMeasure, budget: float
) -> float | MissingValue:
    cell = grid.cell(variant, task, language)
    if isinstance(cell, MissingValue):
        return cell
    if measure.spent(cell.points[0]) > budget:
        return MissingValue("no checkpoint was evaluated that early")
    return cell.curve(measure.spent).at(budget)

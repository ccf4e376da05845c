"""The paper's tables of cost, 3 and A1 (near-maximal performance), and what follows: speed-ups, shares retained."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from lingraft.config.systems import System
from lingraft.reports.paper.cells import (
    MEAN,
    Footnotes,
    ReportTable,
    Show,
    TableRow,
    TimeUnit,
    format_mean,
    format_reached,
)
from lingraft.reports.paper.efficiency import Ratios, Reached, over_tasks, retained, speed_up
from lingraft.reports.paper.published import DAYS, SCORES, PublishedTable
from lingraft.reports.paper.records import TaskFacts
from lingraft.reports.paper.results_table import (
    COMPUTE,
    MEASURED_SECONDS,
    CostMeasure,
    MissingValue,
    ResultsTable,
    TargetRule,
    Variant,
)

RatiosByTask = Mapping[str, Ratios]
_Rule = Callable[[Mapping[str, float], Mapping[str, float]], Ratios]


def target_time_table(
    results: ResultsTable,
    task: TaskFacts,
    number: str,
    variants: Sequence[Variant],
    measure: CostMeasure = COMPUTE,
    goal: TargetRule = TargetRule.PAPER,
    intervals: bool = False,
) -> ReportTable:
    """One task's part of table 3 or A1: time to near-maximal performance; with intervals, of table A4.

    Args:
        results: the run.
        task: one of its tasks.
        number: of the table.
        variants: rows.
        measure: compute, or seconds as measured.
        goal: what counts as near-maximal.
        intervals: show the checkpoints before and after too.
    """
    notes = Footnotes(results.reasons)
    found = {
        variant: {language: results.reached(variant, task, language, measure, goal) for language in task.languages}
        for variant in variants
    }
    unit = TimeUnit.fitting(_estimates(reached for row in found.values() for reached in row.values()))
    write = unit.interval if intervals else lambda reached: unit.show(reached.estimate)
    if intervals:
        notes.add("In brackets, the checkpoints before and after.")
    rows = []
    for variant, row in found.items():
        counted = {
            language: reached.estimate
            for language, reached in row.items()
            if not isinstance(reached, MissingValue)
            and math.isfinite(reached.estimate)
            and results.is_informative(task, language)
        }
        cells = [format_reached(reached, write, notes) for reached in row.values()]
        rows.append(TableRow(variant.system, (*cells, format_mean(counted, len(task.languages), unit.show))))
    head = ("system", *(notes.language_label(results, task, language) for language in task.languages), MEAN)
    return ReportTable(
        number, f"{task.title}, {measure.prefix}{unit.name} until {goal}", head, tuple(rows), notes.lines
    )


def _estimates(found: Iterable[Reached | MissingValue]) -> Iterable[float]:
    return (reached.estimate for reached in found if not isinstance(reached, MissingValue))


def format_ratio(ratio: float) -> str:
    """A speed-up."""
    return f"{ratio:.2f}×"


def format_share(ratio: float) -> str:
    """A share in percent."""
    return f"{ratio:.1%}"


def speed_up_table(results: ResultsTable) -> list[ReportTable]:
    """Figure 1 as numbers: mean speed-ups over BL_BASE per task, in compute and seconds; none without mini-models."""
    counted = [
        ("compute", COMPUTE, TargetRule.PAPER),
        ("compute, over the baseline", COMPUTE, TargetRule.OVER_BASELINE),
        ("seconds measured", MEASURED_SECONDS, TargetRule.PAPER),
        ("seconds measured, over the baseline", MEASURED_SECONDS, TargetRule.OVER_BASELINE),
    ]
    rows = {
        f"{variant.system}, {what}": {
            task.name: results.speed_up(variant, task, measure, goal) for task in results.records.tasks
        }
        for variant in results.mini_variants
        for what, measure, goal in counted
    }
    paper = _published_rows(results, results.mini_variants, DAYS, speed_up)
    table = _ratio_table(results, "Times less than BL_BASE until near-maximal performance", rows, paper, format_ratio)
    return [table] if rows else []


def retained_table(results: ResultsTable) -> list[ReportTable]:
    """Share of BL_BASE's final score that each other system keeps, per task."""
    variants = [variant for variant in results.variants if variant != results.reference]
    rows = {
        str(variant.system): {task.name: results.retained(variant, task) for task in results.records.tasks}
        for variant in variants
    }
    paper = _published_rows(results, variants, SCORES, retained)
    return (
        [_ratio_table(results, "Share of BL_BASE's final score that is kept", rows, paper, format_share)]
        if rows
        else []
    )


def published_ratios(printed: Mapping[str, PublishedTable], system: System, rule: _Rule) -> dict[str, Ratios]:
    """Ratios of one system to BL_BASE per task, from the rounded numbers that the paper prints."""
    return {
        name: rule(task.row(system), task.row(System.BL_BASE)) for name, task in printed.items() if system in task.rows
    }


def _published_rows(
    results: ResultsTable, variants: Sequence[Variant], printed: Mapping[str, PublishedTable], rule: _Rule
) -> dict[str, dict[str, Ratios]]:
    """The paper's rows to show beside ours, if it has any of our tasks."""
    if not {task.name for task in results.records.tasks} & set(printed):
        return {}
    found = {f"{variant.system} in the paper": published_ratios(printed, variant.system, rule) for variant in variants}
    return {label: by_task for label, by_task in found.items() if by_task}


def _ratio_table(
    results: ResultsTable, title: str, ours: Mapping[str, RatiosByTask], paper: Mapping[str, RatiosByTask], show: Show
) -> ReportTable:
    notes = Footnotes(results.reasons)
    tasks = results.records.tasks
    notes.add("Ratios are taken per language, then averaged; the last column is the mean of the tasks' means.")
    if any(task.appendix for task in tasks):
        named = ", ".join(task.title for task in tasks if task.appendix)
        notes.add(f"The last column leaves {named} out, as the paper does.")
    rows = [TableRow(label, _ratio_cells(tasks, by_task, show, notes)) for label, by_task in ours.items()]
    for label, by_task in paper.items():
        notes.add(
            "The paper's rows are by the same rule from its rounded numbers; its data and sizes differ from ours."
        )
        rows.append(TableRow(label, _ratio_cells(tasks, by_task, show, notes), "quiet"))
    _note_left_out(tasks, ours, notes)
    head = ("system", *(task.title for task in tasks), "mean of tasks")
    return ReportTable("", title, head, tuple(rows), notes.lines)


def _ratio_cells(tasks: Sequence[TaskFacts], by_task: RatiosByTask, show: Show, notes: Footnotes) -> tuple[str, ...]:
    cells = []
    for task in tasks:
        ratios = by_task.get(task.name)
        if ratios is None:
            cells.append(notes.missing(MissingValue("not in the paper")))
        elif ratios.mean is None:
            cells.append(notes.missing(MissingValue("no language to compare")))
        else:
            cells.append(format_mean(ratios.by_language, len(ratios.by_language) + len(ratios.left_out), show))
    counted = [by_task[task.name] for task in tasks if not task.appendix and task.name in by_task]
    overall = over_tasks(counted)
    return (*cells, notes.missing(MissingValue("no language to compare")) if overall is None else show(overall))


def _note_left_out(tasks: Sequence[TaskFacts], rows: Mapping[str, RatiosByTask], notes: Footnotes) -> None:
    """Name the languages without a ratio; rows that lack the same ones share a sentence."""
    labels: dict[tuple[str, str], list[str]] = {}
    for task, (label, by_task) in itertools.product(tasks, rows.items()):
        named = ", ".join(f"{language} ({reason})" for language, reason in by_task[task.name].left_out.items())
        labels.setdefault((task.title, named), []).append(label)
    for (title, named), of in labels.items():
        if named:
            notes.add(f"Left out on {title}: {named}; in the rows “{'”, “'.join(of)}”.")

"""The paper's tables of cost, 3, 4, A1 and A4 (near-maximal performance), and what follows: speed-ups, equal cost."""

from collections.abc import Mapping, Sequence
from statistics import mean

from lingraft.config.systems import System
from lingraft.model.flops import V100_FLOPS_PER_S
from lingraft.reports.paper.efficiency import RatioRule, Ratios, over_tasks, retained, speed_up
from lingraft.reports.paper.published import DAYS, SCORES, PublishedTable
from lingraft.reports.paper.records import Cell, CurvePoint, TaskFacts
from lingraft.reports.paper.report_table import (
    UNKNOWN,
    Footnotes,
    ReportTable,
    Show,
    TableRow,
    TaskTable,
    TimeUnit,
    format_mean,
    format_points,
    format_ratio,
)
from lingraft.reports.paper.results_table import (
    COMPUTE,
    MEASURED_SECONDS,
    CostMeasure,
    MissingValue,
    ResultsTable,
    TargetRule,
    Variant,
)
from lingraft.tables import format_flops, percent

_RatiosByTask = Mapping[str, Ratios]
_BRACKETS = "In brackets, the checkpoints before and after."
_NOTHING_TO_COMPARE = MissingValue("no language to compare")


def target_time_table(
    results: ResultsTable,
    task: TaskFacts,
    number: str,
    variants: Sequence[Variant],
    measure: CostMeasure = COMPUTE,
    goal: TargetRule = TargetRule.PAPER,
    intervals: bool = False,
) -> ReportTable:
    """Return one task's part of table 3 or A1: time to near-maximal performance; with intervals, of table A4.

    Args:
        results: the run.
        task: one of its tasks.
        number: number of the table.
        variants: rows.
        measure: compute, or seconds as measured.
        goal: rule by which a score counts as near-maximal.
        intervals: show the checkpoints before and after too.
    """
    table = TaskTable(results, task)
    found = {
        variant: {language: results.reached(variant, task, language, measure, goal) for language in task.languages}
        for variant in variants
    }
    unit = TimeUnit.of_reached(reached for row in found.values() for reached in row.values())
    write = unit.interval if intervals else unit.estimate
    if intervals:
        table.notes.add(_BRACKETS)
    for variant, row in found.items():
        table.add_row(
            variant.system,
            row,
            write=lambda reached: table.notes.reached(reached, write),
            number=lambda reached: reached.estimate,
            show=unit.show,
        )
    return table.finished(number, f"{measure.prefix}{unit.name} until {goal}")


def target_time_by_depth(results: ResultsTable, system: System, intervals: bool = False) -> list[ReportTable]:
    """Return table 4, or with intervals A4: a row per language and task, a column per depth; none for one depth."""
    notes = Footnotes(results)
    depths = results.depths(system)
    found = {
        f"{notes.language_label(task, language)} {task.title}": [
            results.reached(Variant(system, depth), task, language) for depth in depths
        ]
        for task in results.records.tasks
        for language in results.depth_languages(system, task)
    }
    if not found:
        return []
    unit = TimeUnit.of_reached(each for row in found.values() for each in row)
    write = unit.interval if intervals else unit.estimate
    if intervals:
        notes.add(_BRACKETS)
    rows = [
        TableRow(label, tuple(notes.cell(each, lambda reached: notes.reached(reached, write)) for each in row))
        for label, row in found.items()
    ]
    title = f"V100-{unit.name} to near-maximal performance, {system} by depth"
    head = ("depth", *map(str, depths))
    return [ReportTable("Table A4" if intervals else "Table 4", title, head, tuple(rows), notes.lines)]


def equal_table(results: ResultsTable, task: TaskFacts, measure: CostMeasure = COMPUTE) -> ReportTable:
    """Return one task's scores when each system has spent as much as the one that spends least in all; scores are
    interpolated between checkpoints.
    """
    table = TaskTable(results, task)
    budgets = {language: _budget(results, task, language, measure) for language in task.languages}
    unit = TimeUnit.fitting(budgets.values())
    spent = [table.notes.cell(budget or MissingValue("not run"), unit.show) for budget in budgets.values()]
    table.rows.append(TableRow(f"{measure.prefix}{unit.name} spent", (*spent, UNKNOWN), "quiet"))
    for variant in results.variants:
        scores = {
            language: _score_at(results.cell(variant, task, language), measure, budget)
            for language, budget in budgets.items()
        }
        table.add_row(variant.system, scores, format_points, float)
    table.notes.add("In each language, every system has spent what the one that spends least spends in all.")
    what = "compute" if measure is COMPUTE else "seconds"
    return table.finished("", f"{task.metric} in percent at equal {what}")


def _budget(results: ResultsTable, task: TaskFacts, language: str, measure: CostMeasure) -> float:
    """Return the least that a system spends in all; 0 where none came to its end."""
    cells = [results.cell(variant, task, language) for variant in results.variants]
    return min((measure.spent(cell.points[-1]) for cell in cells if isinstance(cell, Cell)), default=0.0)


def _score_at(cell: Cell | MissingValue, measure: CostMeasure, budget: float) -> float | MissingValue:
    if isinstance(cell, MissingValue):
        return cell
    if measure.spent(cell.points[0]) > budget:
        return MissingValue("no checkpoint was evaluated that early")
    return cell.curve(measure.spent).at(budget)


def spent_table(results: ResultsTable) -> ReportTable:
    """Return what a whole adaptation took, mean over a system's runs: the costs beside table 2."""
    notes = Footnotes(results)
    notes.add("Means over the runs that came to their end. FLOPs are by equation A3; a V100 does 30 TFLOP/s.")
    ends = {variant: _ends(results, variant) for variant in results.variants}
    unit = TimeUnit.fitting(point.flops / V100_FLOPS_PER_S for points in ends.values() for point in points)
    measured = TimeUnit.fitting(point.elapsed_s for points in ends.values() for point in points)
    rows = []
    for variant, points in ends.items():
        if points:
            flops = mean(point.flops for point in points)
            cells = [
                f"{mean(point.step for point in points):,.0f}",
                format_flops(flops),
                unit.show(flops / V100_FLOPS_PER_S),
                measured.show(mean(point.elapsed_s for point in points)),
            ]
        else:
            cells = [notes.missing(MissingValue("no run came to its end"))] * 4
        rows.append(TableRow(variant.system, (str(variant.depth), *cells)))
    if results.records.machine:
        notes.add(f"Measured on {results.records.machine}, by the clock of training alone.")
    head = ("system", "shared layers", "updates", "FLOPs", f"V100-{unit.name}", f"measured, {measured.name}")
    return ReportTable("Table 2", "the cost of adapting one language", head, tuple(rows), notes.lines)


def _ends(results: ResultsTable, variant: Variant) -> list[CurvePoint]:
    """Return the last checkpoint of each language; tasks share a run, so that any of them will do."""
    found = {
        language: cell.points[-1]
        for task in results.records.tasks
        for language in task.languages
        if isinstance(cell := results.cell(variant, task, language), Cell)
    }
    return list(found.values())


def speed_up_table(results: ResultsTable) -> list[ReportTable]:
    """Return figure 1 as numbers: mean speed-ups over BL_BASE per task; none without mini-models."""
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
    return _ratio_table(results, "Times less than BL_BASE until near-maximal performance", rows, paper, format_ratio)


def retained_table(results: ResultsTable) -> list[ReportTable]:
    """Return the share of BL_BASE's final score that each other system keeps, per task."""
    variants = [variant for variant in results.variants if variant != results.reference]
    rows = {
        str(variant.system): {task.name: results.retained(variant, task) for task in results.records.tasks}
        for variant in variants
    }
    paper = _published_rows(results, variants, SCORES, retained)
    return _ratio_table(results, "Share of BL_BASE's final score that is kept", rows, paper, percent)


def published_ratios(printed: Mapping[str, PublishedTable], system: System, rule: RatioRule) -> dict[str, Ratios]:
    """Return ratios of one system to BL_BASE per task, from the rounded numbers that the paper prints."""
    found = {}
    for name, task in printed.items():
        if system in task.rows:
            pairs = zip(task.rows[system], task.rows[System.BL_BASE], strict=True)
            found[name] = Ratios.of(rule, dict(zip(task.languages, pairs, strict=True)))
    return found


def _published_rows(
    results: ResultsTable, variants: Sequence[Variant], printed: Mapping[str, PublishedTable], rule: RatioRule
) -> dict[str, _RatiosByTask]:
    """Return the paper's rows to show beside ours, if it has any of our tasks."""
    if not {task.name for task in results.records.tasks} & set(printed):
        return {}
    found = {f"{variant.system} in the paper": published_ratios(printed, variant.system, rule) for variant in variants}
    return {label: by_task for label, by_task in found.items() if by_task}


def _ratio_table(
    results: ResultsTable, title: str, ours: Mapping[str, _RatiosByTask], paper: Mapping[str, _RatiosByTask], show: Show
) -> list[ReportTable]:
    if not ours:
        return []
    notes = Footnotes(results)
    tasks = results.records.tasks
    notes.add("Ratios are taken per language, then averaged; the last column is the mean of the tasks' means.")
    if named := ", ".join(task.title for task in tasks if task.appendix):
        notes.add(f"The last column leaves {named} out, as the paper does.")
    rows = [TableRow(label, _ratio_cells(tasks, by_task, show, notes)) for label, by_task in ours.items()]
    if paper:
        notes.add(
            "The paper's rows are by the same rule from its rounded numbers; its data and sizes differ from ours."
        )
    rows += [TableRow(label, _ratio_cells(tasks, by_task, show, notes), "quiet") for label, by_task in paper.items()]
    for task in tasks:
        _note_left_out(task, {label: by_task[task.name] for label, by_task in ours.items()}, notes)
    head = ("system", *(task.title for task in tasks), "mean of tasks")
    return [ReportTable("", title, head, tuple(rows), notes.lines)]


def _ratio_cells(tasks: Sequence[TaskFacts], by_task: _RatiosByTask, show: Show, notes: Footnotes) -> tuple[str, ...]:
    cells = []
    for task in tasks:
        ratios = by_task.get(task.name)
        if ratios is None:
            cells.append(notes.missing(MissingValue("not in the paper")))
        elif ratios.mean is None:
            cells.append(notes.missing(_NOTHING_TO_COMPARE))
        else:
            cells.append(format_mean(ratios.by_language, ratios.count, show))
    overall = over_tasks(by_task[task.name] for task in tasks if not task.appendix and task.name in by_task)
    return (*cells, notes.missing(_NOTHING_TO_COMPARE) if overall is None else show(overall))


def _note_left_out(task: TaskFacts, rows: _RatiosByTask, notes: Footnotes) -> None:
    """Name the languages without a ratio; rows that lack the same ones share a sentence."""
    labels: dict[str, list[str]] = {}
    for label, ratios in rows.items():
        named = ", ".join(f"{language} ({reason})" for language, reason in ratios.left_out.items())
        labels.setdefault(named, []).append(label)
    for named, of in labels.items():
        if named:
            notes.add(f"Left out on {task.title}: {named}; in the rows “{'”, “'.join(of)}”.")

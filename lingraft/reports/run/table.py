"""The terminal's tables: plain text, about 130 columns wide."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from lingraft.artifacts.artifact import Cost
from lingraft.data.languages import name_and_tag
from lingraft.reports.run.classes import class_tables
from lingraft.reports.run.columns import (
    UNKNOWN,
    FlopsUnit,
    Group,
    alignment_groups,
    alignment_note,
    cost_group,
    count,
    initial_rows_note,
    masked_groups,
    overlap_group,
    percent,
    seconds,
    spread,
)
from lingraft.reports.run.records import ResultRow, RunRecords
from lingraft.reports.run.task_columns import baseline_summary, metric_label, task_group
from lingraft.stages.results import SourceResult, TaskScores

_WIDTH = 130
"""Of a terminal, in characters."""
_GAP = "  "
"""Between groups of columns; columns of a group are one space apart."""


def table(records: RunRecords) -> str:
    """The source in a few lines, a row per language and mini-model, means over languages, and what the columns mean.

    Below: a table for each task, recall per class, and what the gate decided.
    """
    legend = (
        "mini-model, primary: share of hidden tokens that each guesses right; overlap: pieces that the source has too."
    )
    parts = [*_source_lines(records), "", *_all_tables(records), legend, *notes(records), *_alignment_lines(records)]
    return "\n".join([*parts, *_class_lines(records), *_verdict_lines(records)])


def brief_table(records: RunRecords) -> str:
    """The results alone, about 100 columns wide: what a run ends with on a terminal.

    Recall per class, costs and the gate's reasons are in the report.
    """
    source = records.source
    groups = [replace(masked_groups()[1], short="masked tokens"), *alignment_groups(records)]
    rows = records.rows
    means = records.means
    # Several tasks have a table each: they do not fit beside each other.
    [first, *others] = [[_brief_group(records, task)] for task in records.tasks if records.tested_on(task)] or [[]]
    top = percent(source.masked_by_depth[max(source.masked_by_depth)])
    scores = [f"; {task.name}: {task.metric} {spread(task.score)}" for task in source.tasks]
    lines = [
        f"Source {name_and_tag(source.language)}, {source.layers} layers: masked tokens {top}{''.join(scores)}",
        "",
        *_table_lines([*groups, *first, _brief_cost(records)], rows, means),
    ]
    for task_groups in others:
        lines += ["", *_table_lines(task_groups, rows, means)]
    explained = "before: rows as initialised; after: as learned over these layers. Test pages that no training saw."
    alignment = "alignment: hidden states nearest to their counterpart in the source language."
    standard = "standard: over all layers, the usual way."
    has_standard = any(row.mark == "standard" for row in rows)
    lines += ["", explained, *([alignment] if alignment_groups(records) else []), *([standard] if has_standard else [])]
    return "\n".join([*lines, *_brief_verdicts(records)])


def _brief_group(records: RunRecords, task: str) -> Group:
    group = task_group(records, task)
    shown = tuple(column for column in group.columns if column.short in {"before", "after", "majority", "trivial"})
    return replace(group, short=f"{task}, zero-shot", columns=shown)


def _brief_cost(records: RunRecords) -> Group:
    *_, ratio = cost_group(FlopsUnit.fitting(records)).columns
    return Group("compute", "compute", (replace(ratio, short="of standard"),))


def _brief_verdicts(records: RunRecords) -> list[str]:
    """One line for the languages that are served, and one for each that is not."""
    served = [language for language, verdict in records.verdicts.items() if verdict.promoted]
    stopped = [f"{name_and_tag(each)} is NOT promoted; the report says why." for each in records.refused]
    stopped += [f"{name_and_tag(each)} FAILED; the report says why." for each in records.failed]
    return [*([f"Promoted by the gate: {', '.join(map(name_and_tag, served))}."] if served else []), *stopped]


def notes(records: RunRecords) -> list[str]:
    """What the words and marks in the tables mean, and why columns are missing."""
    return [
        "before: embeddings as initialised, untrained; after: as learned. Scores are of test data only.",
        f"layers: those that the embeddings were learned over, of {records.source.layers}; "
        "standard: all of them, the usual way" + ("; searched: chosen by the depth search." if records.search else "."),
        *([f"alignment: {told[0].lower()}{told[1:]}"] if (told := alignment_note(records)) else []),
        *(["fresh: layers built on top of these, for the mini-model alone."] if records.has_fresh_layers else []),
        *_task_notes(records),
    ]


def _task_notes(records: RunRecords) -> list[str]:
    if not records.tasks:
        return ["No zero-shot scores: the recipe names no task, so none was finetuned and tested."]
    found = [result.task_scores.get(task) for task in records.tasks for result in records.languages]
    missing = any(task is None or task.initial is None for task in found)
    return [_seeds_note(records), *([f"{UNKNOWN}: not measured."] if missing else [])]


def _seeds_note(records: RunRecords) -> str:
    seeds = {task: len(records.scores(task).score.by_seed) for task in records.tasks}
    if set(seeds.values()) == {1}:
        return "One finetuning seed: no ±."
    if len(set(seeds.values())) == 1:
        return f"±: standard deviation over {max(seeds.values())} finetuning seeds."
    numbers = ", ".join(f"{task} {number}" for task, number in seeds.items())
    return f"±: standard deviation over finetuning seeds ({numbers})."


def _source_lines(records: RunRecords) -> list[str]:
    source = records.source
    unit = FlopsUnit.fitting(records)
    heads = ", ".join(f"{percent(score)} at layer {depth}" for depth, score in sorted(source.masked_by_depth.items()))
    lines = [
        f"Source {name_and_tag(source.language)}: {source.layers} layers, {count(source.vocabulary)} pieces, "
        f"{source.precision}, primary {source.primary[:12]}",
        f"  masked-token accuracy by head: {heads}",
        f"  pretraining: {_cost(source.pretraining, unit)}",
    ]
    lines += [f"  step 1b, {over} layers: {_cost(cost, unit)}" for over, cost in records.building_costs.items()]
    return [*lines, *map(_score_line, source.tasks), *_finetuning_lines(source, unit)]


def _score_line(task: TaskScores) -> str:
    further = "".join(f", {metric_label(metric)} {spread(scores)}" for metric, scores in task.others.items())
    return f"  {task.name}: {task.metric} {spread(task.score)}{further} ({baseline_summary(task)})"


def _finetuning_lines(source: SourceResult, unit: FlopsUnit) -> list[str]:
    seeds = {task: ", ".join(map(str, runs)) for task, runs in source.finetuning_history.items()}
    return [
        f"  finetuning on {task}, all seeds ({seeds[task]}): {_cost(cost, unit)}"
        for task, cost in source.finetuning.items()
    ]


def _cost(cost: Cost, unit: FlopsUnit) -> str:
    return f"{count(cost.tokens)} tokens, {seconds(cost.elapsed_s)} s, {unit.show(cost.flops)} {unit.name}"


def _all_tables(records: RunRecords) -> list[str]:
    """Every table's lines, with an empty line below each."""
    first = [
        overlap_group(records),
        *masked_groups(),
        *alignment_groups(records),
        cost_group(FlopsUnit.fitting(records)),
    ]
    lines = [*_table_lines(first, records.rows, records.means), ""]
    for task in records.tasks:
        if records.tested_on(task):
            lines += [*_table_lines([task_group(records, task)], records.rows, records.means_on(task)), ""]
    return lines


def _class_lines(records: RunRecords) -> list[str]:
    """Recall per class, as many columns side by side as fit, and a line for each class that is never found."""
    lines = []
    for found in class_tables(records):
        names = [f"{found.task}: recall", *(label for label, _ in found.rows)]
        columns = [
            [title, *(recalls[place].shown for _, recalls in found.rows)] for place, title in enumerate(found.columns)
        ]
        for some in _side_by_side(columns, _WIDTH - max(map(len, names))):
            blocks = [_block("", [names], str.ljust), *(_block("", [column], str.rjust) for column in some)]
            header, *rows = [_GAP.join(cells).rstrip() for cells in zip(*(block[1:] for block in blocks), strict=True)]
            lines += ["", header, "-" * len(header), *rows]
        lines += ["", *(f"WARNING: {said}" for said in found.never_found)]
    return lines


def _side_by_side(columns: Sequence[Sequence[str]], width: int) -> Iterator[list[Sequence[str]]]:
    """Columns in groups that are not wider than `width`."""
    group: list[Sequence[str]] = []
    left = width
    for column in columns:
        needed = len(_GAP) + max(map(len, column))
        if group and needed > left:
            yield group
            group = []
            left = width
        group.append(column)
        left -= needed
    yield group


def _alignment_lines(records: RunRecords) -> list[str]:
    """How well each language's pieces were aligned with the source's before training, where they were."""
    shown = [records.of_language(language)[0] for language in records.names]
    return [
        f"{name_and_tag(result.language)}: {initial_rows_note(result, records.source.language)}"
        for result in shown
        if result.initial_alignment
    ]


def _verdict_lines(records: RunRecords) -> list[str]:
    """What the gate decided about each language, and why."""
    return [
        f"{name_and_tag(language)}: version {verdict.version} of {verdict.model!r} is "
        f"{'promoted' if verdict.promoted else 'NOT promoted'}: {verdict.reason}"
        for language, verdict in records.verdicts.items()
    ]


def _table_lines(groups: Sequence[Group], rows: Sequence[ResultRow], means: Sequence[ResultRow]) -> list[str]:
    shown = [*rows, *means]
    names = [["language", *(row.language for row in shown)], ["layers", *(row.layers for row in shown)]]
    blocks = [_block("", [column], str.ljust) for column in names] + [
        _block(group.short, [[c.short, *(c.cell(row) for row in shown)] for c in group.columns], str.rjust)
        for group in groups
    ]
    lines = [_GAP.join(cells).rstrip() for cells in zip(*blocks, strict=True)]
    rule = "-" * len(lines[1])
    end = 2 + len(rows)
    return [*lines[:2], rule, *lines[2:end], *([rule, *lines[end:]] if means else [])]


def _block(title: str, columns: Sequence[Sequence[str]], justify: Callable[[str, int], str]) -> list[str]:
    """Lines of equal width: the title over columns that are as wide as their longest cell."""
    widths = [max(len(cell) for cell in column) for column in columns]
    lines = [
        " ".join(justify(cell, width) for cell, width in zip(cells, widths, strict=True))
        for cells in zip(*columns, strict=True)
    ]
    width = max(len(title), len(lines[0]))
    return [title.center(width), *(line.rjust(width) for line in lines)]

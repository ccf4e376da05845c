"""The terminal's tables: plain text, about 130 columns wide."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from lingraft.artifacts.manifest import Cost
from lingraft.data.languages import name_and_tag
from lingraft.reports.run.classes import class_tables
from lingraft.reports.run.columns import (
    UNKNOWN,
    FlopsUnit,
    Group,
    alignment_groups,
    alignment_note,
    baseline_summary,
    cost_group,
    count,
    initial_rows_note,
    masked_groups,
    overlap_group,
    seconds,
    spread,
    task_group,
)
from lingraft.reports.run.records import ResultRow, RunRecords
from lingraft.stages.results import metric_label
from lingraft.tables import aligned, percent, text_table

_WIDTH = 130
"""Characters of a line of a terminal."""
_GAP = "  "
"""Space between groups of columns; columns of a group are one space apart."""


def table(records: RunRecords) -> str:
    """Return the source in a few lines, a row per language and mini-model, means over languages, and a legend.

    Below: a table for each task, recall per class, and what the gate decided.
    """
    cost = cost_group(FlopsUnit.fitting(records))
    groups = [overlap_group(records), *masked_groups(records), *alignment_groups(records), cost]
    lines = [*_source_lines(records), "", *_table_lines(groups, records.rows, records.means), ""]
    for task in records.tasks:
        if records.tested_on(task):
            lines += [*_table_lines([task_group(records, task)], records.rows, records.means_on(task)), ""]
    lines += [
        "mini-model, primary: share of hidden tokens that each guesses right; overlap: pieces that the source has too.",
        *notes(records),
        *_alignment_lines(records),
        *_class_lines(records),
        *_verdict_lines(records),
    ]
    return "\n".join(lines)


def brief_table(records: RunRecords) -> str:
    """Return the results alone, about 100 columns wide: what a run ends with on a terminal.

    Recall per class, costs and the gate's reasons are in the report.
    """
    source = records.source
    rows, means = records.rows, records.means
    alignment = alignment_groups(records)
    *_, ratio = cost_group(FlopsUnit.fitting(records)).columns
    cost = Group("compute", (replace(ratio, short="of standard"),))
    # Several tasks have a table each: they do not fit beside each other.
    first, *others = [[_brief_group(records, task)] for task in records.tasks if records.tested_on(task)] or [[]]
    masked = [replace(group, short="masked tokens") for group in masked_groups(records)[1:]]
    groups = [*masked, *alignment, *first, cost]
    top = [score for _, score in sorted(source.masked_by_depth.items())][-1:]  # none where there is no MLM head
    scores = [f"masked tokens {percent(score)}" for score in top]
    scores += [f"{task.name}: {task.metric} {spread(task.score)}" for task in source.tasks]
    lines = [
        f"Source {name_and_tag(source.language)}, {source.layers} layers: {'; '.join(scores)}",
        "",
        *_table_lines(groups, rows, means),
    ]
    for task_groups in others:
        lines += ["", *_table_lines(task_groups, rows, means)]
    lines += ["", "before: rows as initialised; after: as learned over these layers. Test pages that no training saw."]
    if alignment:
        lines.append("alignment: hidden states nearest to their counterpart in the source language.")
    if any(row.mark == "standard" for row in rows):
        lines.append("standard: over all layers, the usual way.")
    served = [name_and_tag(language) for language, verdict in records.verdicts.items() if verdict.promoted]
    if served:
        lines.append(f"Promoted by the gate: {', '.join(served)}.")
    lines += _untested_notes(records)
    lines += [f"{name_and_tag(each)} is NOT promoted; the report says why." for each in records.refused]
    lines += [f"{name_and_tag(each)} FAILED; the report says why." for each in records.failed]
    return "\n".join(lines)


def _brief_group(records: RunRecords, task: str) -> Group:
    group = task_group(records, task)
    shown = tuple(column for column in group.columns if column.title in {"before", "after", "trivial"})
    return Group(f"{task}, zero-shot", shown)


def notes(records: RunRecords) -> list[str]:
    """Return what the words and marks in the tables mean, and why columns are missing."""
    found = [
        "before: embeddings as initialised, untrained; after: as learned. Scores are of test data only.",
        f"layers: those that the embeddings were learned over, of {records.source.layers}; "
        "standard: all of them, the usual way" + ("; searched: chosen by the depth search." if records.search else "."),
    ]
    if note := alignment_note(records):
        found.append(f"alignment: {note[0].lower()}{note[1:]}")
    if records.has_fresh_layers:
        found.append("fresh: layers built on top of these, for the mini-model alone.")
    if not records.tasks:
        return [*found, "No zero-shot scores: the recipe names no task, so none was finetuned and tested."]
    scores = [result.task_scores.get(task) for task in records.tasks for result in records.languages]
    missing = any(task is None or task.initial is None for task in scores)
    found += [_seeds_note(records), *_untested_notes(records)]
    return [*found, f"{UNKNOWN}: not measured."] if missing else found


def _untested_notes(records: RunRecords) -> list[str]:
    """Say of each task in which languages it has no test examples, such as labels, and so no scores."""
    found = []
    for task in records.tasks:
        names = [
            name_and_tag(language)
            for language in records.names
            if not any(task in result.task_scores for result in records.of_language(language))
        ]
        if names:
            found.append(f"{task} is served, but not judged, in {', '.join(names)}: no labelled test examples there.")
    return found


def _seeds_note(records: RunRecords) -> str:
    seeds = {task: len(records.scores(task).score.by_seed) for task in records.tasks}
    if set(seeds.values()) == {1}:
        return "One finetuning seed: no ±."
    if len(set(seeds.values())) == 1:
        return f"±: standard deviation over {max(seeds.values())} finetuning seeds."
    numbers = ", ".join(f"{task} {number}" for task, number in seeds.items())
    return f"±: standard deviation over finetuning seeds ({numbers})."


def _source_lines(records: RunRecords) -> Iterator[str]:
    source = records.source
    unit = FlopsUnit.fitting(records)

    def spent(cost: Cost) -> str:
        return f"{count(cost.tokens)} tokens, {seconds(cost.elapsed_s)} s, {unit.show(cost.flops)} {unit.name}"

    heads = ", ".join(f"{percent(score)} at layer {depth}" for depth, score in sorted(source.masked_by_depth.items()))
    yield (
        f"Source {name_and_tag(source.language)}: {source.layers} layers, {count(source.vocabulary)} pieces, "
        f"{source.precision}, primary {source.primary[:12]}"
    )
    if heads:
        yield f"  masked-token accuracy by head: {heads}"
    yield f"  pretraining: {spent(source.pretraining)}"
    for over, cost in records.building_costs.items():
        yield f"  step 1b, {over} layers: {spent(cost)}"
    for task in source.tasks:
        others = "".join(f", {metric_label(metric)} {spread(scores)}" for metric, scores in task.others.items())
        yield f"  {task.name}: {task.metric} {spread(task.score)}{others} ({baseline_summary(task)})"
    for name, cost in source.finetuning.items():
        seeds = ", ".join(map(str, source.finetuning_history[name]))
        yield f"  finetuning on {name}, all seeds ({seeds}): {spent(cost)}"


def _class_lines(records: RunRecords) -> Iterator[str]:
    """Yield recall per class, as many columns side by side as fit, and a line for each class that is never found."""
    for found in class_tables(records):
        labels = [f"{found.task}: recall", *(label for label, _ in found.rows)]
        columns = [
            [title, *(str(recalls[place]) for _, recalls in found.rows)] for place, title in enumerate(found.columns)
        ]
        widest = len(_GAP) + max(len(cell) for column in columns for cell in column)
        fitting = max(1, (_WIDTH - max(map(len, labels))) // widest)
        for start in range(0, len(columns), fitting):
            yield ""
            yield from text_table(list(zip(labels, *columns[start : start + fitting], strict=True)))
        yield ""
        yield from (f"WARNING: {warning}" for warning in found.warnings())


def _alignment_lines(records: RunRecords) -> list[str]:
    """Say how well each language's pieces were aligned with the source's before training, where they were."""
    shown = [records.of_language(language)[0] for language in records.names]
    return [
        f"{name_and_tag(result.language)}: {initial_rows_note(result, records.source.language)}"
        for result in shown
        if result.initial_alignment
    ]


def _verdict_lines(records: RunRecords) -> list[str]:
    """Say what the gate decided about each language, and why."""
    return [
        f"{name_and_tag(language)}: version {verdict.version} of {verdict.model!r} is "
        f"{'promoted' if verdict.promoted else 'NOT promoted'}: {verdict.reason}"
        for language, verdict in records.verdicts.items()
    ]


def _table_lines(groups: Sequence[Group], rows: Sequence[ResultRow], means: Sequence[ResultRow]) -> list[str]:
    """Return a table with the groups' headings in its first line, and rules below the headings and above the means."""
    shown = [*rows, *means]
    names = aligned([("language", "layers"), *((row.language, row.layers) for row in shown)], left=2, gap=_GAP)
    blocks = [_block("", names, str.ljust)]
    for group in groups:
        headings = [column.heading for column in group.columns]
        cells = [[column.cell(row) for column in group.columns] for row in shown]
        blocks.append(_block(group.heading, aligned([headings, *cells], left=0, gap=" "), str.rjust))
    lines = [_GAP.join(parts).rstrip() for parts in zip(*blocks, strict=True)]
    rule = "-" * len(lines[1])
    end = 2 + len(rows)
    return [*lines[:2], rule, *lines[2:end], *([rule, *lines[end:]] if means else [])]


def _block(title: str, lines: Sequence[str], justify: Callable[[str, int], str]) -> list[str]:
    """Return lines of equal width below their title."""
    width = max(map(len, (title, *lines)))
    return [title.center(width), *(justify(line, width) for line in lines)]

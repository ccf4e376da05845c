"""The terminal's table: plain text, about 130 columns wide."""

from collections.abc import Callable, Sequence

from lingraft.artifact import Cost
from lingraft.report_columns import UNKNOWN, FlopsUnit, all_groups, count, percent, seconds, spread
from lingraft.report_records import Records
from lingraft.results import LanguageResult, SearchResult, SourceResult, TaskScores

_GAP = "  "
"""Between groups of columns; columns of a group are one space apart."""


def table(
    source: SourceResult,
    languages: Sequence[LanguageResult],
    search: SearchResult | None = None,
) -> str:
    """The source in a few lines, a row per language and depth, means over languages, and what the columns mean.

    Raises:
        ArtifactError: no language, or two different embeddings for one language and depth.
        AlignmentError: a language or the search belongs to another primary than the source.
    """
    records = Records.of(source, languages, search)
    legend = (
        "mini-model, primary: share of hidden tokens that each guesses right; overlap: pieces that the source has too."
    )
    return "\n".join([*_source_lines(records), "", *_table_lines(records), "", legend, *notes(records)])


def task_basis(task: TaskScores) -> str:
    """What a task's accuracy is to be seen against."""
    return (
        f"majority class {percent(task.majority)}; {count(task.documents)} test documents, "
        f"{count(task.truncated)} of them longer than a block"
    )


def notes(records: Records) -> list[str]:
    """What the words and marks in the tables mean, and why columns are missing."""
    lines = [
        "before: embeddings as initialised, untrained; after: as learned. Scores are of test documents.",
        f"layers: those that the embeddings were learned over, of {records.source.layers}; "
        "standard: all of them, the usual way" + ("; searched: chosen by the depth search." if records.search else "."),
    ]
    if records.source.task is None:
        return [*lines, "No zero-shot scores: the recipe names no task, so none was finetuned and tested."]
    seeds = len(records.source.task.accuracy.by_seed)
    lines += [f"±: standard deviation over {seeds} finetuning seeds." if seeds > 1 else "One finetuning seed: no ±."]
    if any(row.task is None or row.task.initial is None for row in records.languages):
        lines += [f"{UNKNOWN}: not measured."]
    return lines


def _source_lines(records: Records) -> list[str]:
    source, unit = records.source, FlopsUnit.fitting(records)
    heads = ", ".join(f"{percent(score)} at layer {depth}" for depth, score in sorted(source.masked_by_depth.items()))
    lines = [
        f"Source {source.language}: {source.layers} layers, {count(source.vocabulary)} pieces, {source.precision}, "
        f"primary {source.primary[:12]}",
        f"  masked-token accuracy by head: {heads}",
        f"  pretraining: {_cost(source.pretraining, unit)}",
    ]
    if source.task:
        lines += [f"  {source.task.name}: {spread(source.task.accuracy)} ({task_basis(source.task)})"]
        seeds = ", ".join(str(seed) for seed in source.task.accuracy.by_seed)
        lines += [f"  finetuning, all seeds ({seeds}): {_cost(source.finetuning, unit)}"]
    return lines


def _cost(cost: Cost, unit: FlopsUnit) -> str:
    return f"{count(cost.tokens)} tokens, {seconds(cost.elapsed_s)} s, {unit.show(cost.flops)} {unit.name}"


def _table_lines(records: Records) -> list[str]:
    rows = [*records.rows, *records.means]
    names = [["language", *(row.language for row in rows)], ["layers", *(row.layers for row in rows)]]
    blocks = [_block("", [column], str.ljust) for column in names] + [
        _block(group.short, [[c.short, *(c.cell(row) for row in rows)] for c in group.columns], str.rjust)
        for group in all_groups(records)
    ]
    lines = [_GAP.join(cells).rstrip() for cells in zip(*blocks, strict=True)]
    rule = "-" * len(lines[1])
    body, means = lines[2 : 2 + len(records.rows)], lines[2 + len(records.rows) :]
    return [*lines[:2], rule, *body, *([rule, *means] if means else [])]


def _block(title: str, columns: Sequence[Sequence[str]], justify: Callable[[str, int], str]) -> list[str]:
    """Lines of equal width: the title over columns that are as wide as their longest cell."""
    widths = [max(len(cell) for cell in column) for column in columns]
    lines = [
        " ".join(justify(cell, width) for cell, width in zip(cells, widths, strict=True))
        for cells in zip(*columns, strict=True)
    ]
    width = max(len(title), len(lines[0]))
    return [title.center(width), *(line.rjust(width) for line in lines)]

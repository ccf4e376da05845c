"""The page of a comparison: three sentences, one picture, one table, what they do not show; scores by language."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

from lingraft._version import __version__
from lingraft.comparison.efficiency import NEAR_MAXIMAL, near_maximal
from lingraft.comparison.records import RECORDS_FILE, Records
from lingraft.comparison.results import (
    UNKNOWN,
    Results,
    Variant,
    compute_cell,
    cost_in_words,
    score_cell,
    share_or_unknown,
)
from lingraft.config.systems import System
from lingraft.reports.pages import render_page
from lingraft.reports.plotting import COLOURS, Drawing, legend_above, panels, write_message
from lingraft.tables import counted, markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HTML_FILE = "comparison.html"
_PANEL_IN, _HEAD_IN = 2.2, 0.8
_MOST_TASKS = 3
"""Columns of the picture."""
_STYLES = {
    System.BL_BASE: (COLOURS["grey"], "o"),
    System.BL_SMALL: (COLOURS["orange"], "^"),
    System.MINIPOST: (COLOURS["green"], "s"),
    System.MINIJOINT: (COLOURS["blue"], "D"),
}
_DASHES = ("-", "--", ":", "-.")
"""Lines of a system at one depth after another."""
_LEGEND = (
    "A cell has the mean score in percent over the languages and seeds that count, ± the standard deviation over "
    "seeds; its share of BL_BASE's; the speed-up, that is how many times less compute than BL_BASE is spent until "
    "95% of its final score, and in how many cases (a language with a seed) there is such a number; and the score "
    "when every system has spent what the cheapest spends in all. Compute is that of a whole adaptation by equation "
    "A3, its share of BL_BASE's, and its seconds; those of aligning rows are included. Pretraining and step 1b are "
    "left out, as in the paper."
)


@dataclass(frozen=True)
class Table:
    """A table as text, the same in Markdown and HTML."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """A label in asterisks is of what is only there to compare with."""


@dataclass(frozen=True)
class Page:
    """All parts of the page."""

    title: str
    sentences: tuple[str, ...]
    drawing: Drawing | None
    table: Table
    limits: tuple[str, ...]
    by_language: Table
    failures: tuple[str, ...]


def page(records: Records) -> Page:
    """Return the page of some records."""
    results = Results(records)
    return Page(
        title=records.title,
        sentences=tuple(_sentences(results)),
        drawing=_curves(results),
        table=_summary(results),
        limits=tuple(_limits(results)),
        by_language=_by_language(results),
        failures=tuple(_failures(records)),
    )


def html_page(records: Records) -> str:
    """Return the page as HTML that opens from disk and needs no network."""
    made = page(records)
    context = {
        "page": made,
        "picture": made.drawing.png() if made.drawing else b"",
        "legend": _LEGEND,
        "by_language": _BY_LANGUAGE,
        "records_file": RECORDS_FILE,
        "version": __version__,
    }
    return render_page("lingraft.comparison", HTML_FILE, context)


def markdown_page(records: Records, picture: str) -> str:
    """Return the page as Markdown, but for scores by language; the file of its picture is beside it."""
    made = page(records)
    parts = [f"# {made.title}", " ".join(made.sentences)]
    parts += [f"![{made.drawing.alt}]({picture})", made.drawing.caption] if made.drawing else []
    parts += [_as_markdown(made.table), _LEGEND]
    parts += ["## What it does not show", "\n".join(f"- {limit}" for limit in made.limits)]
    if made.failures:
        parts += ["## What failed", "\n".join(f"- {failure}" for failure in made.failures)]
    return "\n\n".join(parts) + "\n"


def _as_markdown(table: Table) -> str:
    rows = [[cell.replace("\n", "<br>") for cell in row] for row in table.rows]
    return markdown_table(table.head, rows, left=len(table.head))


def _sentences(results: Results) -> Iterator[str]:
    """Yield what each mini-model keeps and saves, in the first task that has curves, and what was compared."""
    for system in (System.MINIJOINT, System.MINIPOST):
        told = []
        for variant in (one for start in results.starts for one in results.variants(start) if one.system is system):
            kept = results.retained(variant, results.tasks[0]) if results.tasks else None
            cost = results.compute(variant)
            if kept is not None and cost and variant.depth < results.records.layers:
                where = f" from {variant.start}" if len(results.starts) > 1 else ""
                over = f"over {variant.depth} of {results.records.layers} layers"
                told.append(f"{kept:.0%} for {cost[2]:.0%} of its compute {over}{where}")
        if told:
            yield f"**{system}** ends with this share of BL_BASE's score in {results.tasks[0]}: {'; '.join(told)}."
    cells = results.records.cells
    missing = sum(bool(cell.failed) for cell in cells)
    yield (
        f"Compared are {counted(len(results.languages), 'language')} ({', '.join(results.languages)}), "
        f"{counted(len(results.seeds), 'pretraining seed')} and {counted(len(results.records.metrics), 'task')}; "
        + (f"{missing} of {len(cells)} scores are missing." if missing else "no score is missing.")
    )


def _summary(results: Results) -> Table:
    """Return the table of all systems from each start, over the languages that count."""
    tasks, records = results.tasks, results.records
    rows: list[tuple[str, ...]] = []
    for start in results.starts:
        languages = [", ".join(results.languages_of(start, task)) or UNKNOWN for task in tasks]
        rows.append((f"from {start}" if start else "all systems", "", *languages))
        trivial = [share_or_unknown(results.trivial(start, task)) for task in tasks]
        rows.append(("*trivial answer*", "", *trivial))
        base = results.base(start)
        initial = [results.final(base, task, 0) for task in tasks]
        rows.append(("*BL_BASE, as initialised*", "", *(one.shown(one.count) if one else UNKNOWN for one in initial)))
        for variant in results.variants(start):
            cells = [score_cell(results, variant, task) for task in tasks]
            rows.append((variant.label(records.layers), compute_cell(results, variant), *cells))
    source = [results.in_source(task) for task in tasks]
    shown = [one.shown(one.count) if one else UNKNOWN for one in source]
    rows.append((f"*BL_BASE, in the source language, {records.source}*", "", *shown))
    return Table(("system", "compute", *(f"{task}, {records.metrics[task]}" for task in tasks)), tuple(rows))


_BY_LANGUAGE = (
    "Score at the end in percent, mean over seeds, and compute until 95% of BL_BASE's where there are curves; in "
    "brackets where the language does not count."
)


def _by_language(results: Results) -> Table:
    rows = []
    for task in results.records.metrics:
        for start in results.starts:
            counts = results.languages_of(start, task)
            for variant in results.variants(start):
                cells = [_language_cell(results, variant, task, language) for language in results.languages]
                shown = [
                    cell if language in counts or cell == UNKNOWN else f"({cell.partition('; ')[0]})"
                    for cell, language in zip(cells, results.languages, strict=True)
                ]
                where = f", from {start}" if start else ""
                rows.append((f"{task}{where}", variant.label(results.records.layers), *shown))
    return Table(("task", "system", *results.languages), tuple(rows))


def _language_cell(results: Results, variant: Variant, task: str, language: str) -> str:
    cells = results.cells(variant, task, [language]).values()
    if not cells:
        return UNKNOWN
    score = f"{100 * mean(cell.means[-1] for cell in cells):.1f}"
    return f"{score}; {cost_in_words(results.reached(variant, task, language))}" if results.has_curves(task) else score


def _limits(results: Results) -> Iterator[str]:
    records = results.records
    for start in results.starts:
        where = f" from {start}" if start else ""
        if absent := sorted(results.not_aligned(start)):
            yield f"Left out{where}, since some system or seed could not align their rows: {', '.join(absent)}."
        left_out = {
            task: [one for one in _judged(results, start, task) if one not in results.languages_of(start, task)]
            for task in records.metrics
        }
        if named := [f"{task} in {', '.join(its)}" for task, its in left_out.items() if its]:
            yield (
                f"Where BL_BASE ends less than 5 points above the trivial answer with some seed{where}, a score says "
                f"nothing, and is left out: {'; '.join(named)}."
            )
    if len(results.seeds) == 1:
        yield "Every primary was pretrained with one seed: how far another would move the scores is not known."
    yield "Absolute scores do not compare with the paper's, whose text, sizes and test sets differ."
    if records.machine:
        yield f"Seconds are those of {records.machine}; on others, systems may differ by other factors."
    yield from records.notes


def _judged(results: Results, start: str, task: str) -> list[str]:
    judged = {case.language for case in results.cells(results.base(start), task, results.languages)}
    return [one for one in results.languages if one in judged - results.not_aligned(start)]


def _failures(records: Records) -> Iterator[str]:
    reasons = Counter(" ".join(cell.failed.split()) for cell in records.cells if cell.failed)
    for reason, count in reasons.items():
        its = [cell for cell in records.cells if cell.failed and " ".join(cell.failed.split()) == reason]
        named = ", ".join(dict.fromkeys(f"{cell.system} {cell.language} {cell.task}" for cell in its))
        yield f"{counted(count, 'score')} ({named}): {reason}"
    yield from records.lost


def _curves(results: Results) -> Drawing | None:
    """Return the learning curves: a row of panels for each start, a column for each task that counts."""
    tasks = [task for task in results.tasks if results.has_curves(task)][:_MOST_TASKS]
    if not tasks:
        return None
    places = [(start, task) for start in results.starts for task in tasks]

    def paint(figure: "Figure") -> None:
        axes = panels(figure, len(places), len(tasks))
        for each, (start, task) in zip(axes, places, strict=True):
            _paint(each, results, start, task)
        figure.supxlabel("compute, FLOP", fontsize="medium")
        legend_above(figure, axes)

    return Drawing(
        title="learning curves",
        caption=(
            "Mean scores over the languages that count, against compute; a curve starts at the compute of its start. "
            f"Dotted, {NEAR_MAXIMAL:.0%} of BL_BASE's final score."
        ),
        alt="Learning curves by system, start and task; the table has their ends.",
        width_in=2.6 * max(2, len(tasks)),
        height_in=_HEAD_IN + _PANEL_IN * len(results.starts),
        paint=paint,
    )


def _paint(axes: "Axes", results: Results, start: str, task: str) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.set_title(task + (f", from {start}" if start else ""), loc="left")
    drawn = Counter[System]()
    for variant in results.variants(start):
        if (curve := results.curve(variant, task)) is None:
            continue
        colour, marker = _STYLES[variant.system]
        line = _DASHES[drawn[variant.system] % len(_DASHES)]
        drawn[variant.system] += 1
        label = variant.label(results.records.layers)
        percents = [100 * score for score in curve.scores]
        axes.plot(curve.costs, percents, line, color=colour, marker=marker, markersize=3.5, label=label)
        if variant.system is System.BL_BASE:
            axes.axhline(near_maximal(percents[-1]), color=COLOURS["red"], linestyle=":", linewidth=1.2)
    if not drawn:
        write_message(axes, "no language counts")
        return
    axes.set_ylabel(f"{results.records.metrics[task]}, %")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(EngFormatter())

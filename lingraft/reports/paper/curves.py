"""The paper's learning curves, figures 3, 4 and A1-A3: scores against what was spent, by system and by depth."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from lingraft.config.systems import System
from lingraft.model.flops import V100_FLOPS_PER_S
from lingraft.reports.paper.records import Cell, CurvePoint, TaskFacts
from lingraft.reports.paper.report_table import TimeUnit
from lingraft.reports.paper.results_table import MissingValue, ResultsTable, Variant
from lingraft.reports.plotting import COLOURS, Drawing, MarkStyle, graded_styles, legend_above, panels, write_message
from lingraft.tables import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

SYSTEM_STYLES = {
    System.BL_BASE: MarkStyle(COLOURS["grey"], "--", "o"),
    System.BL_SMALL: MarkStyle(COLOURS["orange"], ":", "^"),
    System.MINIPOST: MarkStyle(COLOURS["green"], "-", "s"),
    System.MINIJOINT: MarkStyle(COLOURS["blue"], "-", "D"),
}
_CurveStyles = Mapping[Variant, tuple[str, MarkStyle]]
"""Label and style of each line."""
_PANEL_IN, _HEAD_IN = 2.3, 0.6
_TARGET = "95% of BL_BASE"
_MARKS = 12
"""Markers on a line at most, however many checkpoints it has."""


@dataclass(frozen=True)
class _Line:
    """A mean learning curve: seconds of a V100, and percent."""

    label: str
    look: MarkStyle
    seconds: tuple[float, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True)
class _Panel:
    """Lines over the same languages, and their mean target."""

    title: str
    metric: str
    lines: tuple[_Line, ...]
    languages: tuple[str, ...]
    target: float | None

    @property
    def end(self) -> float:
        """Seconds at which the longest line ends."""
        return max((line.seconds[-1] for line in self.lines), default=0.0)

    def __str__(self) -> str:
        ends = ", ".join(f"{line.label} {line.scores[-1]:.1f}" for line in self.lines)
        return f"{self.title}: {ends or 'no curve'}"


def system_curves(results: ResultsTable) -> list[Drawing]:
    """Return figure 3: the systems' mean curves, one panel per main task; none without a curve."""
    shown = [
        _panel(results, task, _system_styles(results), _informative(results, task, task.languages))
        for task in results.main_tasks
    ]
    over = "; ".join(
        f"{task.title}: {', '.join(panel.languages) or 'none'}"
        for task, panel in zip(results.main_tasks, shown, strict=True)
    )
    caption = (
        "Scores while a language's embeddings are learned, against compute; means over the languages in which every "
        f"system came to its end ({over}). Dotted, the score that counts as near-maximal."
    )
    return _drawing("figure-3", "Figure 3", "learning curves", caption, shown)


def language_curves(results: ResultsTable, task: TaskFacts) -> list[Drawing]:
    """Return the systems' curves in every language of a task; none without a curve."""
    title = f"Learning curves of every language, {task.title}"
    caption = "Dotted, the score that counts as near-maximal. A system without a line has no curve there."
    shown = [_panel(results, task, _system_styles(results), [language], language) for language in task.languages]
    return _drawing(f"curves-{task.name}", "", title, caption, shown, columns=3)


def depth_curves(results: ResultsTable, system: System) -> list[Drawing]:
    """Return figure 4, of the first task, and A1 and those that follow, of the others: curves by depth."""
    variants = [Variant(system, depth) for depth in results.depths(system)]
    looks = {
        variant: (counted(variant.depth, "layer"), look)
        for variant, look in zip(variants, graded_styles(len(variants)), strict=True)
    }
    looks[results.reference] = (str(System.BL_BASE), SYSTEM_STYLES[System.BL_BASE])
    drawings = []
    tasks = [task for task in results.records.tasks if results.depth_languages(system, task)]
    for place, task in enumerate(tasks):
        languages = results.depth_languages(system, task)
        shown = [_panel(results, task, looks, [language], language) for language in languages]
        caption = f"{languages[0]} alone was run at several depths."
        if len(languages) > 1:
            shown.insert(0, _panel(results, task, looks, _informative(results, task, languages)))
            caption = "The first panel is the mean over those of the other panels' languages that have every curve."
        number = f"A{place}" if place else "4"
        title = f"learning curves of {system} by depth, {task.title}"
        drawings += _drawing(f"figure-{number}-{system}".lower(), f"Figure {number}", title, caption, shown)
    return drawings


def _system_styles(results: ResultsTable) -> _CurveStyles:
    return {variant: (str(variant.system), SYSTEM_STYLES[variant.system]) for variant in results.variants}


def _informative(results: ResultsTable, task: TaskFacts, languages: Sequence[str]) -> list[str]:
    return [language for language in languages if results.is_informative(task, language)]


def _panel(
    results: ResultsTable, task: TaskFacts, looks: _CurveStyles, languages: Sequence[str], title: str = ""
) -> _Panel:
    """Return mean curves over those of the languages in which every variant with a curve has one."""
    curves = {variant: _curves(results, variant, task, languages) for variant in looks}
    curves = {variant: by_language for variant, by_language in curves.items() if by_language}
    shared = [name for name in languages if curves and all(name in by_language for by_language in curves.values())]
    lines = [
        _mean_line(*looks[variant], [by_language[name] for name in shared])
        for variant, by_language in curves.items()
        if shared
    ]
    targets = [target for name in shared if not isinstance(target := results.target(task, name), MissingValue)]
    if len(shared) > 1:
        over = f"mean of {len(shared)} languages"
    else:
        over = shared[0] if shared else "no language has all curves"
    return _Panel(
        title=title or f"{task.title}, {over}",
        metric=f"{task.title} {task.metric}, %",
        lines=tuple(line for line in lines if line.scores),  # curves that nowhere overlap have no mean
        languages=tuple(shared),
        target=100 * mean(targets) if targets and len(targets) == len(shared) else None,
    )


def _curves(
    results: ResultsTable, variant: Variant, task: TaskFacts, languages: Sequence[str]
) -> dict[str, tuple[CurvePoint, ...]]:
    found = {language: results.cell(variant, task, language) for language in languages}
    return {language: cell.points for language, cell in found.items() if isinstance(cell, Cell)}


def _mean_line(label: str, look: MarkStyle, curves: Sequence[Sequence[CurvePoint]]) -> _Line:
    """Return the mean of curves, interpolated where one lacks a checkpoint of another, as far as all of them go."""
    first = max(curve[0].step for curve in curves)
    last = min(curve[-1].step for curve in curves)
    steps = sorted({point.step for curve in curves for point in curve if first <= point.step <= last})
    flops = _mean_at(steps, curves, lambda point: point.flops)
    scores = _mean_at(steps, curves, lambda point: point.scores.mean)
    return _Line(label, look, tuple(flops / V100_FLOPS_PER_S), tuple(100 * scores))


def _mean_at(
    steps: Sequence[int], curves: Sequence[Sequence[CurvePoint]], number: Callable[[CurvePoint], float]
) -> "NDArray[np.float64]":
    at = [np.interp(steps, [point.step for point in curve], [number(point) for point in curve]) for curve in curves]
    return np.mean(at, axis=0)


def _drawing(
    file: str, number: str, title: str, caption: str, shown: Sequence[_Panel], columns: int = 2
) -> list[Drawing]:
    """Return a figure of panels in one unit of time; none if there is no line to draw."""
    ends = [panel.end for panel in shown if panel.lines]
    if not ends:
        return []
    unit = TimeUnit.fitting([max(ends)])
    columns = min(columns, len(shown))

    def paint(figure: "Figure") -> None:
        axes = panels(figure, len(shown), columns)
        for place, (each, panel) in enumerate(zip(axes, shown, strict=True)):
            _paint(each, panel, unit)
            labelled = place % columns and panel.metric == shown[place - 1].metric
            each.set_ylabel("" if labelled else panel.metric)
        figure.supxlabel(f"compute, V100-{unit.name}", fontsize="medium")
        legend_above(figure, axes)

    return [
        Drawing(
            file=file,
            number=number,
            title=title,
            caption=caption,
            alt=f"Line plots. Scores at the end of training: {'; '.join(map(str, shown))}.",
            height_in=_HEAD_IN + _PANEL_IN * -(-len(shown) // columns),
            paint=paint,
        )
    ]


def _paint(axes: "Axes", panel: _Panel, unit: TimeUnit) -> None:
    axes.set_title(panel.title, loc="left")
    if not panel.lines:
        write_message(axes, "no curve")
        return
    for line in panel.lines:
        axes.plot(
            [seconds / unit.seconds for seconds in line.seconds],
            line.scores,
            line.look.line,
            color=line.look.colour,
            marker=line.look.marker,
            markevery=-(-len(line.seconds) // _MARKS),
            label=line.label,
        )
    if panel.target is not None:
        axes.axhline(panel.target, color=COLOURS["red"], linestyle=":", linewidth=1.2, label=_TARGET)
    axes.set_xlim(left=-0.02 * panel.end / unit.seconds)

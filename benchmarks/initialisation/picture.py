"""The picture of `benchmarks.initialisation`: scores over compute, by what rows start from and by system."""

from collections.abc import Mapping, Sequence
from statistics import mean
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.initialisation.arms import WHOLE, Start, in_order, is_over_further_depth
from benchmarks.initialisation.costs import (
    NAMES,
    TASK_NAMES,
    Costs,
    Record,
    by_depth,
    has_curve,
    reference_start,
    without_depths,
)
from lingraft.config.systems import System
from lingraft.reports.paper.curves import SYSTEM_STYLES
from lingraft.reports.paper.efficiency import near_maximal
from lingraft.reports.plotting import COLOURS, Drawing, MarkStyle, graded_styles, legend_above, panels, percent_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES = {
    **{str(system): style for system, style in SYSTEM_STYLES.items()},
    WHOLE: MarkStyle(COLOURS["sky"], "--", "P"),
}
NOT_COUNTED = "not counted"
_TERA = 1e12
_PANEL_IN, _HEAD_IN = 2.2, 0.5
_LETTERS = 84
"""Letters that titles have room for, side by side."""


class _Curve(NamedTuple):
    """A system's mean over languages at each checkpoint."""

    tflops: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    """Lowest and highest of the pretraining seeds."""


Columns = Mapping[str, Mapping[str, Sequence[Record]]]
"""Records by the title of the column that shows them and by task; those of a column have one start and shape."""


def by_start(records: Sequence[Record], tasks: Sequence[str]) -> Columns:
    """Group records by their start, in the order of `Start`, and those of depths; each shows every task."""
    found = {}
    for start in Start:
        its, title = [one for one in records if one["start"] == start], NAMES[start].replace("`", "")
        found |= {title: without_depths(its), f"{title}, by depth": by_depth(its)}
    return {title: dict.fromkeys(tasks, its) for title, its in found.items() if its}


def drawing(columns: Columns, tasks: Sequence[str], file: str, shares_axes: bool = True) -> Drawing:
    """Return the learning curves of every task, as a picture.

    Args:
        columns: what is shown side by side.
        tasks: a row of panels each.
        file: name of the picture's file, without its ending.
        shares_axes: whether all columns have one scale of compute, and of each task's scores.
    """
    titles = list(columns)
    shown = [(task, title) for task in tasks for title in titles]

    def paint(figure: "Figure") -> None:
        drawn = panels(figure, len(shown), len(titles))
        for number, (axes, (task, title)) in enumerate(zip(drawn, shown, strict=True)):
            column = number % len(titles)
            if number and (shares_axes or number >= len(titles)):
                axes.sharex(drawn[0 if shares_axes else column])
            if column and shares_axes:
                axes.sharey(drawn[number - column])
            _paint(axes, columns[title].get(task, ()), task)
            axes.set_title(fill(title, _LETTERS // len(titles)) if number < len(titles) else "")
            axes.set_ylabel(TASK_NAMES.get(task, task) if column == 0 else "")
            axes.set_xlabel("TFLOP per language" if number >= len(shown) - len(titles) else "")
        legend_above(figure, drawn)

    return Drawing(
        title="Scores over compute",
        caption="",
        alt=f"Learning curves of {', '.join(tasks)}; columns: {'; '.join(titles)}.",
        paint=paint,
        height_in=_HEAD_IN + _PANEL_IN * len(tasks),
        file=file,
    )


def _paint(axes: "Axes", records: Sequence[Record], task: str) -> None:
    if not records:
        axes.text(0.5, 0.5, NOT_COUNTED, transform=axes.transAxes, ha="center", va="center")
        axes.set_yticks([])
        return
    systems = in_order(record["system"] for record in records)
    styles = _STYLES | _depth_styles(systems)
    for system in systems:
        its = [one for one in records if one["system"] == system and has_curve(one, task)]
        if not its:
            continue
        curve, style = _curve(records, its, task), styles[system]
        if system == System.BL_BASE:
            axes.axhline(near_maximal(curve.mean[-1]), color=style.colour, linestyle=":", linewidth=1)
        axes.plot(curve.tflops, curve.mean, style.line, color=style.colour, marker=style.marker, label=system)
        axes.fill_between(curve.tflops, curve.low, curve.high, color=style.colour, alpha=0.15, linewidth=0)
    percent_ticks(axes.yaxis)


def _depth_styles(systems: Sequence[str]) -> dict[str, MarkStyle]:
    further = [system for system in systems if is_over_further_depth(system) and system not in _STYLES]
    return dict(zip(further, graded_styles(len(further)), strict=True))


def _curve(records: Sequence[Record], its: Sequence[Record], task: str) -> _Curve:
    """Means over the languages of some records of one system, checkpoint by checkpoint."""
    costs = {
        language: Costs([one for one in records if one["language"] == language], task, reference_start(records))
        for language in {one["language"] for one in its}
    }
    own = {id(one): costs[one["language"]].alignment_flops(one) for one in its}
    by_seed = [
        [mean(scores) for scores in zip(*(one["scores"][task] for one in its if one["seed"] == seed), strict=True)]
        for seed in sorted({one["seed"] for one in its})
    ]
    points = [*zip(*by_seed, strict=True)]
    return _Curve(
        tflops=[
            mean(one["flops"][point] + own[id(one)] for one in its) / _TERA for point in range(len(its[0]["flops"]))
        ],
        mean=[mean(scores) for scores in points],
        low=[min(scores) for scores in points],
        high=[max(scores) for scores in points],
    )

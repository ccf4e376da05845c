"""The picture of `benchmarks.initialisation`: scores over compute, by what rows start from and by system."""

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.initialisation.arms import PROGRESSIVE, SYSTEMS, WHOLE, Start
from benchmarks.initialisation.costs import NAMES, Costs, Record
from lingraft.reports.paper.curves import SYSTEM_STYLES
from lingraft.reports.plotting import COLOURS, Drawing, MarkStyle, legend_above, panels, percent_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES = {
    **{str(system): style for system, style in SYSTEM_STYLES.items()},
    PROGRESSIVE: MarkStyle(COLOURS["purple"], "-", "v"),
    WHOLE: MarkStyle(COLOURS["sky"], "--", "P"),
}
_TERA = 1e12
_PANEL_IN, _HEAD_IN = 2.2, 0.5


class _Curve(NamedTuple):
    """A system's mean over languages at each checkpoint."""

    tflops: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    """Lowest and highest of the pretraining seeds."""


def drawing(records: Sequence[Record], tasks: Sequence[str], file: str) -> Drawing:
    """Return the learning curves of every task and start, as a picture.

    Args:
        records: as the benchmark's JSON has them.
        tasks: a row of panels each.
        file: name of the picture's file, without its ending.
    """
    starts = [start for start in Start if any(record["start"] == start for record in records)]
    shown = [(task, start) for task in tasks for start in starts]

    def paint(figure: "Figure") -> None:
        drawn = panels(figure, len(shown), len(starts))
        for number, (axes, (task, start)) in enumerate(zip(drawn, shown, strict=True)):
            if number:
                axes.sharex(drawn[0])
            if number % len(starts):
                axes.sharey(drawn[number - number % len(starts)])
            _paint(axes, records, task, start)
            axes.set_title(NAMES[start].replace("`", "").replace(", ", ",\n") if number < len(starts) else "")
            axes.set_ylabel(task if number % len(starts) == 0 else "")
            axes.set_xlabel("TFLOP a language" if number >= len(shown) - len(starts) else "")
        legend_above(figure, drawn)

    return Drawing(
        title="Scores over compute",
        caption="",
        alt=f"Learning curves of {', '.join(tasks)}, a column for each start: {', '.join(starts)}.",
        paint=paint,
        height_in=_HEAD_IN + _PANEL_IN * len(tasks),
        file=file,
    )


def _paint(axes: "Axes", records: Sequence[Record], task: str, start: Start) -> None:
    for system in SYSTEMS:
        its = [one for one in records if (one["start"], one["system"]) == (start, system) and task in one["scores"]]
        if not its:
            continue
        curve, style = _curve(records, its, task), _STYLES[system]
        axes.plot(curve.tflops, curve.mean, style.line, color=style.colour, marker=style.marker, label=str(system))
        axes.fill_between(curve.tflops, curve.low, curve.high, color=style.colour, alpha=0.15, linewidth=0)
    percent_ticks(axes.yaxis)


def _curve(records: Sequence[Record], its: Sequence[Record], task: str) -> _Curve:
    """Means over the languages of some records of one system, checkpoint by checkpoint."""
    costs = {
        language: Costs([one for one in records if one["language"] == language], task)
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

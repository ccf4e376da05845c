"""Figures of a search: scores by compute, the Pareto front, importance of parameters, and cost."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lingraft.reports.plotting import COLOURS, Drawing, MarkStyle, graded_styles, percent_ticks, si_ticks
from lingraft.stages.results import SearchResult, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT_IN = 3.9


def search_drawings(result: SearchResult) -> list[Drawing]:
    """Return the figures for which the search has data."""
    drawn = [_curves(result), _costs(result)]
    if len(result.front) > 1:
        drawn.insert(1, _front(result))
    return [*drawn, _importance(result)] if result.importance else drawn


def _depth_styles(result: SearchResult) -> Mapping[int, MarkStyle]:
    depths = sorted({trial.depth for trial in result.trials})
    return dict(zip(depths, graded_styles(len(depths)), strict=True))


def _label_axes(axes: "Axes", result: SearchResult) -> None:
    axes.set(xlabel="compute of one trial", ylabel=f"{result.metric_title}, dev")
    si_ticks(axes.xaxis, "FLOP")
    percent_ticks(axes.yaxis)


def _curves(result: SearchResult) -> Drawing:
    looks = _depth_styles(result)

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        named: set[int] = set()
        for trial in result.trials:
            _plot_trial(axes, trial, looks[trial.depth], trial.number == result.best, trial.depth not in named)
            named.add(trial.depth)
        if result.target is not None:
            axes.axhline(result.target, color=COLOURS["red"], linestyle=":", label=f"target {result.target:.1%}")
        _label_axes(axes, result)
        figure.legend(loc="outside right center")

    ends = ", ".join(f"{trial.depth} layers {trial.score:.1%}" for trial in result.trials)
    return Drawing(
        file="curves",
        title=f"Scores by compute, {result.language}",
        caption="Each line is a trial, evaluated at the same compute as all others; a cross ends the pruned ones, and "
        "the thick one was chosen. Scores are of dev documents.",
        alt=f"Line plot; the last scores are {ends}.",
        height_in=_HEIGHT_IN,
        paint=paint,
    )


def _plot_trial(axes: "Axes", trial: Trial, look: MarkStyle, chosen: bool, first: bool) -> None:
    flops, scores = zip(*trial.scores_by_flops, strict=True)
    name = f"{trial.depth} layer{'' if trial.depth == 1 else 's'}" if first else None
    width = 3.2 if chosen else 1.4
    axes.plot(flops, scores, look.line, color=look.colour, marker=look.marker, linewidth=width, label=name)
    if trial.pruned:
        axes.plot(flops[-1:], scores[-1:], "x", color=COLOURS["red"], markersize=10, markeredgewidth=2.2, zorder=5)


def _front(result: SearchResult) -> Drawing:
    looks = _depth_styles(result)

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        for trial in result.trials:
            points = [point for point in trial.scores_by_flops if point[0]]
            axes.plot(*zip(*points, strict=True), ".", color=COLOURS["grey"], alpha=0.5, zorder=1)
        flops = [point.flops for point in result.front]
        scores = [point.score for point in result.front]
        axes.plot(flops, scores, color=COLOURS["grey"], drawstyle="steps-post", zorder=2)
        for depth, look in looks.items():
            own = [(point.flops, point.score) for point in result.front if point.depth == depth]
            if own:
                label = f"{depth} layer{'' if depth == 1 else 's'}"
                axes.plot(*zip(*own, strict=True), look.marker, color=look.colour, markersize=7, label=label, zorder=3)
        _label_axes(axes, result)
        figure.legend(loc="outside right center")

    return Drawing(
        file="front",
        title="What compute buys",
        caption="Every evaluation of every trial; marked are those for which no other trial had spent as little for as "
        "good a score.",
        alt=f"Dot plot of {len(result.front)} points from {result.front[0].score:.1%} to {result.front[-1].score:.1%}.",
        height_in=_HEIGHT_IN,
        paint=paint,
    )


def cost_rows(result: SearchResult) -> list[tuple[str, float]]:
    """Return labels and FLOPs of the search and of what it is compared with."""
    rows = [("the search", result.flops), ("the grid, run to its end", result.grid_flops)]
    if result.standard_flops is not None:
        rows.append(("one standard adaptation", result.standard_flops))
    return rows


def _costs(result: SearchResult) -> Drawing:
    rows = cost_rows(result)

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        places = range(len(rows))
        flops = [each for _, each in rows]
        axes.barh(places, flops, 0.6, color=[COLOURS["blue"], COLOURS["grey"], COLOURS["orange"]][: len(rows)])
        for place, each in zip(places, flops, strict=True):
            share = f"{each / result.grid_flops:.0%} of the grid"
            axes.annotate(share, (each, place), (5, 0), textcoords="offset points", va="center")
        axes.set_yticks(places, [name for name, _ in rows])
        axes.invert_yaxis()
        axes.margins(x=0.2)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("compute")
        si_ticks(axes.xaxis, "FLOP")

    said = "; ".join(f"{name} {flops:.3g} FLOPs" for name, flops in rows)
    note = " Step 1b at every depth is in both." if result.building else ""
    caption = f"All trials together, the same without stopping any, and the recipe's adaptation over all layers.{note}"
    return Drawing(
        file="cost",
        title="What the search cost",
        caption=caption,
        alt=f"Bar chart: {said}.",
        height_in=2.1,
        paint=paint,
    )


def _importance(result: SearchResult) -> Drawing:
    shares: Sequence[tuple[str, float]] = sorted(result.importance.items(), key=lambda each: each[1])

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        names = [name.replace("_", " ") for name, _ in shares]
        axes.barh(names, [share for _, share in shares], 0.6, color=COLOURS["blue"])
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("share of what good trials have in common")
        percent_ticks(axes.xaxis)

    said = ", ".join(f"{name} {share:.0%}" for name, share in reversed(shares))
    caption = "Optuna's PED-ANOVA over trials that were not stopped: what sets the better ones apart from all."
    return Drawing(
        file="importance",
        title="What mattered",
        caption=caption,
        alt=f"Bar chart: {said}.",
        height_in=2.2,
        paint=paint,
    )

"""The paper's figure 1, and a plot of tables 4 and A3; the learning curves are in `curves`."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeGuard

from lingraft.config.systems import System
from lingraft.reports.paper.cost_tables import published_ratios
from lingraft.reports.paper.curves import SYSTEM_STYLES
from lingraft.reports.paper.efficiency import Ratios, Reached, over_tasks, speed_up
from lingraft.reports.paper.published import DAYS
from lingraft.reports.paper.records import TaskFacts
from lingraft.reports.paper.report_table import TimeUnit, format_ratio
from lingraft.reports.paper.results_table import MissingValue, ResultsTable, Variant
from lingraft.reports.plotting import COLOURS, Drawing, MarkStyle, legend_above, line_styles, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 0.36
_TEXT_BACKGROUND = {"facecolor": "#ffffff", "edgecolor": "none", "pad": 1.5}
"""Box behind text that stands on a bar."""
_MARKERS = "osDv^P*X"
_PANEL_IN, _HEAD_IN = 2.4, 0.6


def speed_up_drawing(results: ResultsTable) -> list[Drawing]:
    """Return figure 1: mean speed-ups over BL_BASE per task, and the paper's; none without any."""
    groups = [*(task.title for task in results.records.tasks), "mean of tasks"]
    ours: dict[System, list[float | None]] = {}
    paper: dict[System, list[float | None]] = {}
    counts: dict[System, list[str]] = {}
    for variant in results.mini_variants:
        found = {task.name: results.speed_up(variant, task) for task in results.records.tasks}
        ours[variant.system] = _means(results, found)
        counts[variant.system] = [*(f"\n{len(each.by_language)}/{each.count}" for each in found.values()), ""]
        paper[variant.system] = _means(results, published_ratios(DAYS, variant.system, speed_up))
    if not any(height is not None for heights in ours.values() for height in heights):
        return []

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        for order, system in enumerate(ours):
            offset = (order - (len(ours) - 1) / 2) * _BAR
            _paint_bars(
                axes=axes,
                system=system,
                offset=offset,
                heights=ours[system],
                counts=counts[system],
                paper=paper[system],
            )
        axes.axhline(1, color=COLOURS["grey"], linestyle="--", label="BL_BASE")
        axes.set_xticks(range(len(groups)), groups)
        axes.set_xlim(-0.6, len(groups) - 0.4)
        axes.tick_params(axis="x", length=0)
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.06)
        axes.set_ylabel("speed-up over BL_BASE")
        legend_above(figure, [axes])

    heights = "; ".join(
        f"{system} on {group} {'none' if height is None else format_ratio(height)}"
        for system, heights in ours.items()
        for group, height in zip(groups, heights, strict=True)
    )
    return [
        Drawing(
            file="figure-1",
            number="Figure 1",
            title="average speed-up",
            caption="How many times less compute than BL_BASE a system takes to near-maximal performance: ratios per "
            "language, then their mean. Under a number, how many of the languages it is a mean over. Black strokes: "
            "the same from the paper's rounded days.",
            alt=f"Bar chart. {heights}.",
            height_in=3.3,
            paint=paint,
        )
    ]


def _paint_bars(
    axes: "Axes",
    system: System,
    offset: float,
    heights: Sequence[float | None],
    counts: Sequence[str],
    paper: Sequence[float | None],
) -> None:
    shown = [(place + offset, height, counts[place]) for place, height in enumerate(heights) if height is not None]
    xs = [x for x, _, _ in shown]
    colour = SYSTEM_STYLES[system].colour
    axes.bar(xs, [height for _, height, _ in shown], 0.92 * _BAR, color=colour, label=system)
    for x, height, count in shown:
        axes.annotate(
            format_ratio(height) + count,
            (x, 0),
            (0, 5),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            bbox=_TEXT_BACKGROUND,
        )
    for place, printed in enumerate(paper):
        if printed is not None:
            x = place + offset
            axes.hlines(printed, x - _BAR / 2, x + _BAR / 2, color="#000000", linewidth=1.6, label="the paper")


def _means(results: ResultsTable, by_task: Mapping[str, Ratios]) -> list[float | None]:
    """Return a mean per task, then over those tasks that count; the latter only where all of them are there."""
    means = [by_task[task.name].mean if task.name in by_task else None for task in results.records.tasks]
    main = [by_task[task.name] for task in results.main_tasks if task.name in by_task]
    return [*means, over_tasks(main) if len(main) == len(results.main_tasks) else None]


def depth_drawings(results: ResultsTable, system: System) -> list[Drawing]:
    """Return a plot of tables 4 and A3, a row of two panels per task; none without several depths."""
    depths = results.depths(system)
    tasks = [task for task in results.records.tasks if results.depth_languages(system, task)]
    languages = dict.fromkeys(language for task in tasks for language in results.depth_languages(system, task))
    looks = {
        language: MarkStyle(colour, line, _MARKERS[place % len(_MARKERS)])
        for place, (language, (line, colour)) in enumerate(zip(languages, line_styles(), strict=False))
    }
    if not any(_ends(results, system, task, language) for task in tasks for language in task.languages):
        return []

    def paint(figure: "Figure") -> None:
        axes = panels(figure, 2 * len(tasks), 2)
        for place, task in enumerate(tasks):
            shown = {name: looks[name] for name in results.depth_languages(system, task)}
            _paint_finals(axes[2 * place], results, system, task, shown)
            _paint_times(axes[2 * place + 1], results, system, task, shown)
        for each in axes:
            each.set_xticks(depths)
        for each in axes[-2:]:
            each.set_xlabel("depth of the mini-model, layers")
        legend_above(figure, axes)

    return [
        Drawing(
            file=f"depths-{system}".lower(),
            title=f"What the depth of {system}'s mini-model changes",
            caption="Left, scores at the end of training, dashed BL_BASE's; right, compute until 95% of them. Each "
            "line is a language; a hollow dot at the top never gets there, and lines break where there is no number.",
            alt="Line plots; tables 4 and A3 hold their numbers.",
            height_in=_HEAD_IN + _PANEL_IN * len(tasks),
            paint=paint,
        )
    ]


def _ends(results: ResultsTable, system: System, task: TaskFacts, language: str) -> dict[int, float]:
    """Return final scores in percent by depth, where there are any."""
    finals = {depth: results.final(Variant(system, depth), task, language) for depth in results.depths(system)}
    return {depth: 100 * final.mean for depth, final in finals.items() if not isinstance(final, MissingValue)}


def _paint_finals(
    axes: "Axes", results: ResultsTable, system: System, task: TaskFacts, looks: Mapping[str, MarkStyle]
) -> None:
    depths = results.depths(system)
    for language, look in looks.items():
        ends = _ends(results, system, task, language)
        if not ends:  # without a line, neither a name in the legend nor something to compare with
            continue
        heights = [ends.get(depth, math.nan) for depth in depths]
        axes.plot(depths, heights, look.line, color=look.colour, marker=look.marker, label=language)
        reference = results.final(results.reference, task, language)
        if not isinstance(reference, MissingValue):
            axes.axhline(100 * reference.mean, color=look.colour, linestyle="--", linewidth=0.9)
    axes.set_title(task.title, loc="left")
    axes.set_ylabel(f"{task.metric}, %")


def _paint_times(
    axes: "Axes", results: ResultsTable, system: System, task: TaskFacts, looks: Mapping[str, MarkStyle]
) -> None:
    depths: Sequence[int] = results.depths(system)
    found = {
        language: {
            depth: reached
            for depth in depths
            if not isinstance(reached := results.reached(Variant(system, depth), task, language), MissingValue)
        }
        for language in looks
    }
    longest = max((each.estimate for row in found.values() for each in row.values() if _finite(each)), default=0.0)
    unit = TimeUnit.fitting([longest])
    top = 1.15 * longest if longest else 1.0
    apart = 0.03 * (depths[-1] - depths[0])
    for place, (language, row) in enumerate(found.items()):
        look = looks[language]
        shift = apart * (place - (len(found) - 1) / 2)
        # What is not a number leaves a gap, so that no line goes past a depth that never got there.
        heights = [each.estimate / unit.seconds if _finite(each := row.get(depth)) else math.nan for depth in depths]
        never = [depth + shift for depth, each in row.items() if not _finite(each)]
        axes.plot(depths, heights, look.line, color=look.colour, marker=look.marker)
        axes.plot(never, [top / unit.seconds] * len(never), look.marker, color=look.colour, markerfacecolor="none")
    axes.set_title(f"{task.title}, until near-maximal", loc="left")
    axes.set_ylabel(f"compute, V100-{unit.name}")
    if any(not _finite(each) for row in found.values() for each in row.values()):
        axes.axhline(top / unit.seconds, color=COLOURS["grid"], linewidth=8, zorder=0)
        axes.text(1.01, top / unit.seconds, "never", transform=axes.get_yaxis_transform(), va="center")
    axes.set_ylim(0, 1.08 * top / unit.seconds)


def _finite(reached: Reached | None) -> TypeGuard[Reached]:
    return reached is not None and math.isfinite(reached.estimate)

"""The paper's figure 1, and plots of what its tables 3, 4 and A3 hold; the learning curves are in `paper_curves`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from lingraft.config.systems import System
from lingraft.reports.paper.canvas import SYSTEM_STYLES, Drawing, MarkStyle, legend_above, panels
from lingraft.reports.paper.cells import TimeUnit
from lingraft.reports.paper.cost_tables import format_ratio, published_ratios
from lingraft.reports.paper.efficiency import Ratios, Reached, over_tasks, speed_up
from lingraft.reports.paper.published import DAYS
from lingraft.reports.paper.records import TaskFacts
from lingraft.reports.paper.results_table import MissingValue, ResultsTable, Variant
from lingraft.reports.plotting import COLOURS, line_styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 0.36
_TEXT_BACKGROUND = {"facecolor": "#ffffff", "edgecolor": "none", "pad": 1.5}
"""Behind text that stands on a bar or a line."""
_MARKERS = "osDv^P*X"
_PANEL_IN, _HEAD_IN, _LINE_IN = 2.4, 0.6, 0.28


@dataclass(frozen=True)
class _Bars:
    """One system's bars of figure 1."""

    system: System
    offset: float
    heights: list[float | None]
    counts: list[str]
    paper: list[float | None]

    def paint(self, axes: "Axes") -> None:
        look = SYSTEM_STYLES[self.system]
        places = [place for place, height in enumerate(self.heights) if height is not None]
        heights = [height for height in self.heights if height is not None]
        shifted = [place + self.offset for place in places]
        axes.bar(shifted, heights, 0.92 * _BAR, color=look.colour, label=str(self.system))
        for place, x, height in zip(places, shifted, heights, strict=True):
            text = format_ratio(height) + (f"\n{self.counts[place]}" if self.counts[place] else "")
            axes.annotate(
                text, (x, 0), (0, 5), textcoords="offset points", ha="center", fontsize=8, bbox=_TEXT_BACKGROUND
            )
        for place, said in enumerate(self.paper):
            if said is not None:
                x = place + self.offset
                axes.hlines(said, x - _BAR / 2, x + _BAR / 2, color="#000000", linewidth=1.6, label="the paper")


def speed_up_drawing(results: ResultsTable) -> list[Drawing]:
    """Figure 1: mean speed-ups over BL_BASE per task, and the paper's where it has the task; none without any."""
    bars = [
        _bars(results, variant, (order - (len(results.mini_variants) - 1) / 2) * _BAR)
        for order, variant in enumerate(results.mini_variants)
    ]
    if not any(height is not None for each in bars for height in each.heights):
        return []
    groups = [*(task.title for task in results.records.tasks), "mean of tasks"]

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        for each in bars:
            each.paint(axes)
        axes.axhline(1, color=COLOURS["grey"], linestyle="--", label="BL_BASE")
        axes.set_xticks(range(len(groups)), groups)
        axes.set_xlim(-0.6, len(groups) - 0.4)
        axes.tick_params(axis="x", length=0)
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.06)
        axes.set_ylabel("speed-up over BL_BASE")
        legend_above(figure, [axes])

    caption = (
        "How many times less compute than BL_BASE a system takes to near-maximal performance: ratios per language, "
        "then their mean. Under a number, how many of the languages it is a mean over. Black strokes: the same from "
        "the paper's rounded days."
    )
    said = "; ".join(
        f"{each.system} on {group} {'none' if height is None else format_ratio(height)}"
        for each in bars
        for group, height in zip(groups, each.heights, strict=True)
    )
    return [
        Drawing(
            file="figure-1",
            number="Figure 1",
            title="average speed-up",
            caption=caption,
            alt=f"Bar chart. {said}.",
            height_in=3.3,
            paint=paint,
        )
    ]


def _bars(results: ResultsTable, variant: Variant, offset: float) -> _Bars:
    tasks = results.records.tasks
    ours = {task.name: results.speed_up(variant, task) for task in tasks}
    paper = published_ratios(DAYS, variant.system, speed_up)
    counts = [f"{len(each.by_language)}/{len(each.by_language) + len(each.left_out)}" for each in ours.values()]
    return _Bars(variant.system, offset, _heights(results, ours), [*counts, ""], _heights(results, paper))


def _heights(results: ResultsTable, by_task: Mapping[str, Ratios]) -> list[float | None]:
    """A mean per task, then over those tasks that count; the latter only where all of them are there."""
    means = [by_task[task.name].mean if task.name in by_task else None for task in results.records.tasks]
    main = [by_task[task.name] for task in results.main_tasks if task.name in by_task]
    return [*means, over_tasks(main) if len(main) == len(results.main_tasks) else None]


def target_time_drawing(results: ResultsTable, task: TaskFacts) -> list[Drawing]:
    """What table 3 or A1 holds of a task, with the checkpoints before and after; none if nothing took any compute."""
    found = {
        variant: [results.reached(variant, task, language) for language in task.languages]
        for variant in results.variants
    }
    uppers = [each.upper for row in found.values() for each in row if _finite(each)]
    if not any(uppers):
        return []
    unit = TimeUnit.fitting([max(uppers)])
    beyond = 1.08 * max(uppers)
    empty = [
        language
        for language, column in zip(task.languages, zip(*found.values(), strict=True), strict=True)
        if all(isinstance(reached, MissingValue) for reached in column)
    ]

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        for order, (variant, row) in enumerate(found.items()):
            offset = (order - (len(found) - 1) / 2) * 0.17
            _paint_reached(axes=axes, system=variant.system, row=row, offset=offset, unit=unit, beyond=beyond)
        for place, language in enumerate(task.languages):
            if language in empty:
                axes.text(
                    0.01 * beyond / unit.seconds, place, "no number", va="center", fontsize=8, bbox=_TEXT_BACKGROUND
                )
        axes.axvline(beyond / unit.seconds, color=COLOURS["grid"], linewidth=8, zorder=0)
        axes.text(beyond / unit.seconds, 1.01, "never", transform=axes.get_xaxis_transform(), ha="center")
        labels = [language + ("" if results.is_informative(task, language) else " †") for language in task.languages]
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_xlim(0, 1.04 * beyond / unit.seconds)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(f"compute, V100-{unit.name}")
        legend_above(figure, [axes])

    dagger = (
        " †: not informative." if not all(results.is_informative(task, language) for language in task.languages) else ""
    )
    nothing = f" No system has a number in {', '.join(empty)}." if empty else ""
    caption = (
        "Compute until 95% of BL_BASE's final score; whiskers reach from the checkpoint before to the one after. "
        f"A system without a dot has no number there.{nothing}{dagger}"
    )
    height = 1.1 + max(_LINE_IN * len(task.languages) * max(len(found) / 3, 1), 0.9)
    title = f"Compute to near-maximal performance by language, {task.title}"
    alt = f"Dot plot of table A1, {task.title}, with the intervals of table A4."
    return [
        Drawing(
            file=f"near-{task.name}", number="", title=title, caption=caption, alt=alt, height_in=height, paint=paint
        )
    ]


def _finite(reached: Reached | MissingValue | None) -> TypeGuard[Reached]:
    return isinstance(reached, Reached) and math.isfinite(reached.estimate)


def _paint_reached(
    axes: "Axes", system: System, row: Sequence[Reached | MissingValue], offset: float, unit: TimeUnit, beyond: float
) -> None:
    look = SYSTEM_STYLES[system]
    for place, reached in enumerate(row):
        if isinstance(reached, MissingValue):
            continue
        at = beyond
        whiskers = [[0.0], [0.0]]
        if _finite(reached):
            at = reached.estimate
            whiskers = [[(at - reached.lower) / unit.seconds], [(reached.upper - at) / unit.seconds]]
        axes.errorbar(
            at / unit.seconds,
            place + offset,
            xerr=whiskers,
            fmt=look.marker,
            color=look.colour,
            elinewidth=1,
            capsize=2,
            label=str(system),
        )


def depth_drawings(results: ResultsTable, system: System) -> list[Drawing]:
    """What tables 4 and A3 hold, a row of two panels per task; none without several depths."""
    depths = results.depths(system)
    tasks = [task for task in results.records.tasks if results.depth_languages(system, task)]
    if not any(_ends(results, system, task, language) for task in tasks for language in task.languages):
        return []

    def paint(figure: "Figure") -> None:
        axes = panels(figure, 2 * len(tasks), 2)
        for place, task in enumerate(tasks):
            _paint_finals(axes[2 * place], results, system, task)
            _paint_times(axes[2 * place + 1], results, system, task, depths)
        for each in axes:
            each.set_xticks(depths)
        for each in axes[-2:]:
            each.set_xlabel("depth of the mini-model, layers")
        legend_above(figure, axes)

    caption = (
        "Left, scores at the end of training, dashed BL_BASE's; right, compute until 95% of them. Each line is a "
        "language; a hollow dot at the top never gets there, "
        "and lines break where there is no number."
    )
    height = _HEAD_IN + _PANEL_IN * len(tasks)
    alt = "Line plots; tables 4 and A3 hold their numbers."
    return [
        Drawing(
            file=f"depths-{system}".lower(),
            number="",
            title=f"What the depth of {system}'s mini-model changes",
            caption=caption,
            alt=alt,
            height_in=height,
            paint=paint,
        )
    ]


def _language_styles(results: ResultsTable, system: System) -> dict[str, MarkStyle]:
    """One look per language, the same in all panels."""
    languages = dict.fromkeys(
        language for task in results.records.tasks for language in results.depth_languages(system, task)
    )
    return {
        language: MarkStyle(colour, line, _MARKERS[place % len(_MARKERS)])
        for place, (language, (line, colour)) in enumerate(zip(languages, line_styles(), strict=False))
    }


def _ends(results: ResultsTable, system: System, task: TaskFacts, language: str) -> dict[int, float]:
    """Final scores in percent by depth, where there are any."""
    finals = {depth: results.final(Variant(system, depth), task, language) for depth in results.depths(system)}
    return {depth: 100 * final.mean for depth, final in finals.items() if not isinstance(final, MissingValue)}


def _paint_finals(axes: "Axes", results: ResultsTable, system: System, task: TaskFacts) -> None:
    looks = _language_styles(results, system)
    depths = results.depths(system)
    for language in results.depth_languages(system, task):
        look = looks[language]
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


def _paint_times(axes: "Axes", results: ResultsTable, system: System, task: TaskFacts, depths: Sequence[int]) -> None:
    found = {
        language: {
            depth: reached
            for depth in depths
            if not isinstance(reached := results.reached(Variant(system, depth), task, language), MissingValue)
        }
        for language in results.depth_languages(system, task)
    }
    longest = max((each.estimate for row in found.values() for each in row.values() if _finite(each)), default=0.0)
    unit = TimeUnit.fitting([longest])
    top = 1.15 * longest if longest else 1.0
    looks = _language_styles(results, system)
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

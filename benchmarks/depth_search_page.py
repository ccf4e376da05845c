"""Records of `benchmarks.depth_search`, a page in Markdown, and a plot."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING

import pydantic

from benchmarks.pages import write_page
from benchmarks.speed.machine import cores
from lingraft.config.recipe import Recipe
from lingraft.reports.plotting import COLOURS, Drawing, graded_styles, panels, percent_ticks, si_ticks
from lingraft.stages.results import SearchResult, Trial
from lingraft.tables import counted, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "depth-search"


class Ran(pydantic.BaseModel, frozen=True):
    """Cost of a training."""

    flops: float
    training_s: float


class Found(pydantic.BaseModel, frozen=True):
    """A search, and its seconds from beginning to end; absent if it was broken off on the way."""

    result: SearchResult
    elapsed_s: float | None


class Case(pydantic.BaseModel, frozen=True):
    """One language with one seed."""

    language: str
    seed: int
    grid: list[Trial]
    """Every depth, run to its end."""
    found: Found
    standard: Ran

    @property
    def grid_flops(self) -> float:
        """FLOPs of all depths."""
        return sum(trial.flops for trial in self.grid)

    @property
    def grid_s(self) -> float:
        """Seconds of training, of all depths."""
        return sum(trial.elapsed_s for trial in self.grid)

    @property
    def search_s(self) -> float:
        """Seconds of training in the search."""
        return sum(trial.elapsed_s for trial in self.found.result.trials)


class Verdict(pydantic.BaseModel, frozen=True):
    """Whether the depth that a search chose is the grid's best, or as good as that."""

    language: str
    best: int
    chosen: dict[int, int]
    """Depth by seed."""
    means: dict[int, float]
    """Mean of the grid's scores by depth."""
    deviation: float
    """Standard deviation of the best depth's scores over seeds; not a number for a single one."""

    @property
    def within(self) -> dict[int, bool]:
        """Whether what was chosen is the best depth, or less than a deviation below it, by seed."""
        floor = self.means[self.best] - (self.deviation if self.deviation == self.deviation else 0.0)
        return {seed: depth == self.best or self.means[depth] >= floor for seed, depth in self.chosen.items()}


def verdict_on(cases: Sequence[Case]) -> Verdict:
    """Return the verdict on one language's cases."""
    scores = {
        trial.depth: [other.score for case in cases for other in case.grid if other.depth == trial.depth]
        for trial in cases[0].grid
    }
    means = {depth: mean(found) for depth, found in scores.items()}
    best = max(means, key=lambda depth: means[depth])
    deviation = stdev(scores[best]) if len(cases) > 1 else float("nan")
    chosen = {case.seed: case.found.result.chosen for case in cases}
    return Verdict(language=cases[0].language, best=best, chosen=chosen, means=means, deviation=deviation)


def write(recipe: Recipe, primary: Ran, cases: Sequence[Case], folder: Path) -> None:
    """Write records, page and plot of all cases so far."""
    by_language = {case.language: [each for each in cases if each.language == case.language] for case in cases}
    verdicts = [verdict_on(found) for found in by_language.values()]
    records = {
        "cores": cores(),
        "recipe": recipe.model_dump(mode="json", exclude={"text", "cluster"}),
        "primary": primary.model_dump(),
        "cases": [case.model_dump(mode="json") for case in cases],
        "verdicts": [verdict.model_dump(mode="json") | {"within": verdict.within} for verdict in verdicts],
    }
    write_page(folder / NAME, records, page(recipe, primary, by_language, verdicts), _plot(by_language).png())


def page(recipe: Recipe, primary: Ran, by_language: dict[str, list[Case]], verdicts: Sequence[Verdict]) -> str:
    """The page: what was found, and what it cost, a line a language."""
    every = [case for cases in by_language.values() for case in cases]
    share = sum(case.found.result.flops for case in every) / sum(case.grid_flops for case in every)
    agreed = [fits for verdict in verdicts for fits in verdict.within.values()]
    seeds = sorted({case.seed for case in every})
    parts = [
        "# Depth search",
        f"`python -m benchmarks.depth_search --data DIR --out DIR` on {counted(cores(), 'core')}: "
        f"a primary of {recipe.encoder.layers} layers, {recipe.encoder.width} wide, heads at "
        f"{list(recipe.searched_depths)}, pretrained in {recipe.source.language} for {primary.flops:.3g} FLOPs; "
        f"seeds {seeds}. "
        "Scores are masked tokens found on dev text by the primary with the rows swapped in. Every trial has the same "
        "budget.",
        f"**The search spent {share:.0%} of the grid's FLOPs. In {sum(agreed)} of {len(agreed)} searches it chose the "
        "grid's best depth, or one within a standard deviation of it over seeds.**",
        _scores(recipe.searched_depths, verdicts, by_language),
        _costs(by_language),
        f"![Scores by compute]({NAME}.png)",
        "Faint: the grid, each depth to its end, all seeds. Strong: the search; a cross where a trial was stopped.",
    ]
    return "\n\n".join(parts) + "\n"


def _scores(depths: Sequence[int], verdicts: Sequence[Verdict], by_language: dict[str, list[Case]]) -> str:
    head = ["", *(counted(depth, "layer") for depth in depths), "grid's best", "chosen, by seed", "as good"]
    rows = []
    for verdict in verdicts:
        cells = [f"{verdict.means[depth]:.2%}" for depth in depths]
        deviation = "" if verdict.deviation != verdict.deviation else f" (SD {verdict.deviation:.2%})"
        chosen = ", ".join(map(str, verdict.chosen.values()))
        good = f"{sum(verdict.within.values())} of {len(verdict.within)}"
        rows.append([verdict.language, *cells, f"{verdict.best}{deviation}", chosen, good])
    return markdown_table(head, rows)


def _costs(by_language: dict[str, list[Case]]) -> str:
    head = ["mean of seeds", "grid FLOPs", "grid s", "search FLOPs", "search s", "with judging s", "share of grid"]
    head += ["standard FLOPs", "standard s", "search / standard"]
    rows = []
    for language, cases in by_language.items():
        grid, found = mean(case.grid_flops for case in cases), mean(case.found.result.flops for case in cases)
        whole = [case.found.elapsed_s for case in cases if case.found.elapsed_s is not None]
        standard = cases[0].standard
        cells = [f"{grid:.3g}", f"{mean(case.grid_s for case in cases):.0f}", f"{found:.3g}"]
        cells += [
            f"{mean(case.search_s for case in cases):.0f}",
            f"{mean(whole):.0f}" if whole else "",
            f"{found / grid:.0%}",
        ]
        cells += [f"{standard.flops:.3g}", f"{standard.training_s:.0f}", f"{found / standard.flops:.2f}"]
        rows.append([language, *cells])
    return markdown_table(head, rows)


def _plot(by_language: dict[str, list[Case]]) -> Drawing:
    depths = sorted({trial.depth for cases in by_language.values() for case in cases for trial in case.grid})
    looks = dict(zip(depths, graded_styles(len(depths)), strict=True))

    def paint(figure: "Figure") -> None:
        for axes, (language, cases) in zip(panels(figure, len(by_language), 3), by_language.items(), strict=True):
            for case in cases:
                for trial in case.grid:
                    points = [*zip(*trial.scores_by_flops, strict=True)]
                    axes.plot(*points, color=looks[trial.depth].colour, alpha=0.25, linewidth=0.9)
                for trial in case.found.result.trials:
                    points = [*zip(*trial.scores_by_flops, strict=True)]
                    first = case is cases[0] and language == next(iter(by_language))
                    label = counted(trial.depth, "layer") if first else None
                    axes.plot(*points, color=looks[trial.depth].colour, linewidth=1.3, label=label)
                    if trial.pruned:
                        axes.plot(points[0][-1:], points[1][-1:], "x", color=COLOURS["red"], markersize=5)
            axes.set_title(language)
            axes.set_xlabel("compute of one trial")
            si_ticks(axes.xaxis, "FLOP")
            axes.locator_params(axis="x", nbins=3)
            percent_ticks(axes.yaxis)
        figure.legend(loc="outside upper center", ncols=len(depths))

    return Drawing(
        title="Scores by compute", caption="", alt="Line plots, one a language.", paint=paint, height_in=3.3, file=NAME
    )

"""Files of a search's result: PNG plots, and one HTML page that opens from disk and needs no network."""

from collections.abc import Iterator
from typing import NamedTuple

from lingraft._version import __version__
from lingraft.reports.pages import render_page
from lingraft.search.plots import cost_rows, search_drawings
from lingraft.stages.results import SearchResult, Trial

PAGE_FILE = "search.html"
_SEARCHED = ("learning_rate", "mask_rate", "initialisation", "budget_share")


class TrialRow(NamedTuple):
    """A row of the table of trials."""

    cells: list[str]
    chosen: bool


def render_files(result: SearchResult) -> dict[str, bytes]:
    """Return the content of the page and of its plots, by file name.

    Raises:
        MissingExtraError: matplotlib or jinja2 is not installed.
    """
    drawings = search_drawings(result)
    pictures = {drawing.file: drawing.png() for drawing in drawings}
    searched = [name for name in _SEARCHED if any(getattr(trial, name) is not None for trial in result.trials)]
    page = render_page(
        "lingraft.search",
        PAGE_FILE,
        {
            "result": result,
            "summary": summary(result),
            "head": ["layers", *(name.replace("_", " ") for name in searched), *_column_titles(result)],
            "rows": [
                TrialRow([*_cells(trial, searched, result.target)], trial.number == result.best)
                for trial in result.trials
            ],
            "drawings": drawings,
            "pictures": pictures,
            "version": __version__,
        },
    )
    return {f"{file}.png": png for file, png in pictures.items()} | {PAGE_FILE: page.encode()}


def summary(result: SearchResult) -> str:
    """Return one sentence on the cost of the search, compared with the full grid and with a standard adaptation."""
    (_, spent), *others = cost_rows(result)
    beside = " and ".join(f"{spent / flops:.0%} of {name}" for name, flops in others)
    seconds = sum(trial.elapsed_s for trial in result.trials)
    building = sum(cost.flops for cost in result.building.values())
    once = f", of which step 1b, once for all languages, took {building:.3g}" if building else ""
    return f"It took {spent:.3g} FLOPs{once}, which is {beside}, and {seconds:.0f} s of training."


def _column_titles(result: SearchResult) -> list[str]:
    return ["updates", "FLOPs", "seconds", "score", "ended", *(["FLOPs to the target"] if result.target else [])]


def _cells(trial: Trial, searched: list[str], target: float | None) -> Iterator[str]:
    yield str(trial.depth)
    for name in searched:
        value = getattr(trial, name)
        yield f"{value:.3g}" if isinstance(value, float) else str(value)
    yield f"{trial.steps:,}"
    yield f"{trial.flops:.3g}"
    yield f"{trial.elapsed_s:.1f}"
    yield f"{trial.score:.2%}"
    yield "stopped" if trial.pruned else "whole" if trial.flops == trial.whole_flops else "at the target"
    if target is not None:
        yield "never" if trial.reached_flops is None else f"{trial.reached_flops:.3g}"

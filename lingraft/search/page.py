"""Files of a search's result: PNG plots, and one HTML page that opens from disk and needs no network."""

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
    """Return the content of the page and of its plots, by file name."""
    drawings = search_drawings(result)
    pictures = {drawing.file: drawing.png() for drawing in drawings}
    cells = [_cells(trial, result) for trial in result.trials]
    page = render_page(
        "lingraft.search",
        PAGE_FILE,
        {
            "result": result,
            "summary": summary(result),
            "head": list(cells[0]),
            "rows": [
                TrialRow(list(row.values()), trial.number == result.best)
                for row, trial in zip(cells, result.trials, strict=True)
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


def _cells(trial: Trial, result: SearchResult) -> dict[str, str]:
    """Return the cells of a trial's row by the titles of their columns, which are the same for all trials."""
    cells = {"layers": str(trial.depth)}
    for name in _SEARCHED:
        if any(getattr(each, name) is not None for each in result.trials):
            value = getattr(trial, name)
            cells[name.replace("_", " ")] = f"{value:.3g}" if isinstance(value, float) else str(value)
    end = "whole" if trial.flops == trial.whole_flops else "at the target"
    cells |= {
        "updates": f"{trial.steps:,}",
        "FLOPs": f"{trial.flops:.3g}",
        "seconds": f"{trial.elapsed_s:.1f}",
        "score": f"{trial.score:.2%}",
        "ended": "stopped" if trial.pruned else end,
    }
    if result.target is not None:
        cells["FLOPs to the target"] = "never" if trial.reached_flops is None else f"{trial.reached_flops:.3g}"
    return cells

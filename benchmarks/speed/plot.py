"""The comparison as a picture: tokens a second against Trainer's, and the share of the machine's peak."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.speed.cells import Cell, Training
from benchmarks.speed.table import share_of_peak
from lingraft.reports.plotting import COLOURS

_COLOURS = {
    Training.PRETRAINING: COLOURS["blue"],
    Training.ADAPTATION: COLOURS["orange"],
    Training.MINI: COLOURS["green"],
    Training.STEP_1B: COLOURS["purple"],
    Training.FINETUNING: COLOURS["grey"],
}


def draw(cells: Sequence[Cell], found: dict[str, Any]) -> Figure:
    """Draw both."""
    figure = Figure(figsize=(11, 0.34 * len(cells) + 2.0), layout="constrained")
    faster, share = figure.subplots(1, 2, sharey=True)
    labels = [f"{cell.shape.name}, {cell.format}" for cell in cells]
    ratios = [found["comparison"][cell.name]["ratio"] for cell in cells]
    _bars(faster, cells, labels, ratios, "{:.2f}x")
    faster.plot([cell.flop_ratio for cell in cells], range(len(cells)), "k|", ms=12, label="FLOP ratio")
    faster.axvline(1.0, color="grey", lw=0.8)
    faster.set_xlabel("times as many tokens a second as transformers.Trainer")
    _bars(share, cells, labels, [share_of_peak(cell, found) * 100 for cell in cells], "{:.0f}%")
    share.set_xlabel("% of the matrix-multiplication peak")
    handles, names = faster.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return figure


def _bars(axes: Axes, cells: Sequence[Cell], labels: Sequence[str], values: Sequence[float], text: str) -> None:
    for training, colour in _COLOURS.items():
        places = [place for place, cell in enumerate(cells) if cell.training is training]
        if not places:
            continue
        drawn = axes.barh(places, [values[place] for place in places], color=colour, label=str(training))
        axes.bar_label(drawn, [text.format(values[place]) for place in places], padding=3, fontsize=8)
    axes.set_yticks(range(len(cells)), labels, fontsize=8)
    axes.margins(x=0.12)
    if not axes.yaxis_inverted():
        axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)

"""The figures as matplotlib holds them, before they are pixels."""

import math
from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lingraft.config.systems import System
from lingraft.reports.paper.figures import depth_drawings
from lingraft.reports.paper.results_table import ResultsTable
from lingraft.reports.plotting import Drawing
from tests.reports.paper.made_up import DEPTHS, MadeUp

JOINT = System.MINIJOINT


def painted(drawings: Iterable[Drawing]) -> Figure:
    """The only drawing."""
    (drawing,) = drawings
    figure = Figure()
    drawing.paint(figure)
    return figure


def heights(axes: Axes) -> list[list[float]]:
    """Of the lines that span all depths."""
    return [list(line.get_ydata()) for line in axes.lines if list(line.get_xdata()) == list(DEPTHS)]


def test_a_line_by_depth_breaks_where_the_target_is_never_reached_or_a_run_is_missing(made_up: MadeUp) -> None:
    whole = made_up.cell(JOINT, 4, "de")
    never = whole.model_copy(update={"points": whole.points[:2]})
    records = made_up.records(never, made_up.failed(JOINT, 8, "tr"), tasks=[made_up.task("xnli", ("de", "tr"))])
    finals, times = painted(depth_drawings(ResultsTable(records), JOINT)).axes
    assert [np.isnan(row).tolist() for row in heights(finals)] == [[False] * 4, [False, False, True, False]]
    de, tr = heights(times)
    assert math.isnan(de[1])
    assert math.isfinite(de[2])
    assert math.isnan(tr[2])
    assert math.isfinite(tr[3])


def test_the_legend_names_no_language_without_a_line(made_up: MadeUp) -> None:
    dead = [made_up.failed(JOINT, depth, "tr") for depth in DEPTHS]
    figure = painted(
        depth_drawings(ResultsTable(made_up.records(*dead, tasks=[made_up.task("xnli", ("de", "tr"))])), JOINT)
    )
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["de"]

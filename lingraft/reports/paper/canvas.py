"""What the paper's figures are drawn on: PNG files on white, in colours that colour-blind readers can tell apart."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingraft.config.systems import System
from lingraft.errors import MissingExtraError
from lingraft.reports.plotting import COLOURS, base_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 7.6
_DOTS_PER_INCH = 160
_LEGEND_COLUMNS = 5
_INK = "#1c1f23"
_STYLE = {"font.size": 9, "axes.titlesize": 9.5, "lines.linewidth": 1.6, "lines.markersize": 4.5}


@dataclass(frozen=True)
class MarkStyle:
    """How a line or a dot is drawn; no two of a figure share their marker."""

    colour: str
    line: str
    marker: str


SYSTEM_STYLES = {
    System.BL_BASE: MarkStyle(COLOURS["grey"], "--", "o"),
    System.BL_SMALL: MarkStyle(COLOURS["orange"], ":", "^"),
    System.MINIPOST: MarkStyle(COLOURS["green"], "-", "s"),
    System.MINIJOINT: MarkStyle(COLOURS["blue"], "-", "D"),
}
_MARKERS = "os^Dv<>Pp*hX"
_VIRIDIS = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39")
"""Matplotlib's colour map of that name without its yellow, which white swallows."""


def graded_styles(count: int) -> list[MarkStyle]:
    """Looks for things that have an order, such as depths: from dark to light."""
    last = max(count - 1, 1)
    return [
        MarkStyle(_VIRIDIS[round(place * (len(_VIRIDIS) - 1) / last)], "-", _MARKERS[place % len(_MARKERS)])
        for place in range(count)
    ]


@dataclass(frozen=True)
class Drawing:
    """A figure: what is said of it, and how to paint it; nothing is drawn until it is asked for."""

    file: str
    number: str
    """Such as Figure 1; empty for one that the paper does not have."""
    title: str
    caption: str
    alt: str
    """For those who cannot see it."""
    height_in: float
    paint: "Callable[[Figure], None]"

    @property
    def heading(self) -> str:
        """Number and title."""
        return f"{self.number}: {self.title}" if self.number else self.title

    def png(self) -> bytes:
        """The picture; equal records give equal bytes.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        try:
            import matplotlib
            from matplotlib.figure import Figure
            from matplotlib.layout_engine import ConstrainedLayoutEngine
        except ModuleNotFoundError as error:
            raise MissingExtraError("matplotlib", "report") from error
        with matplotlib.rc_context(base_style(_INK) | _STYLE):  # type: ignore[arg-type]  # the stubs want every key as a literal
            layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06)
            figure = Figure(figsize=(WIDTH_IN, self.height_in), layout=layout, dpi=_DOTS_PER_INCH)
            self.paint(figure)
            stream = io.BytesIO()
            figure.savefig(stream, format="png", metadata={"Software": None})
        return stream.getvalue()


def panels(figure: "Figure", count: int, columns: int) -> "list[Axes]":
    """So many axes in rows of so many; places left over in the last row stay empty."""
    rows = -(-count // columns)
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for spare in axes[count:]:
        spare.remove()
    return axes[:count]


def legend_above(figure: "Figure", axes: "Sequence[Axes]") -> None:
    """One legend for all panels, above them, each label once."""
    handles = {label: handle for each in axes for handle, label in zip(*each.get_legend_handles_labels(), strict=True)}
    rows = -(-len(handles) // _LEGEND_COLUMNS)
    if handles:
        columns = -(-len(handles) // rows)
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=columns)


def write_message(axes: "Axes", sentence: str) -> None:
    """Words in place of a plot."""
    axes.text(0.5, 0.5, sentence, transform=axes.transAxes, ha="center", va="center", wrap=True)
    axes.set_xticks([])
    axes.set_yticks([])

"""Style and helpers of all figures, which matplotlib draws as PNG."""

import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingraft.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = {
    "blue": "#0072b2",
    "orange": "#e69f00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "red": "#d55e00",
    "sky": "#56b4e9",
    "grey": "#767676",
    "grid": "#d9d9d9",
}
_LINES = [COLOURS[name] for name in ("blue", "orange", "green", "purple", "red", "sky")]
_STYLE = {
    "legend.frameon": False,
    "text.parse_math": False,
    "axes.edgecolor": COLOURS["grey"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.7,
    "xtick.color": COLOURS["grey"],
    "ytick.color": COLOURS["grey"],
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), "#1c1f23"),
    "font.size": 9,
    "axes.titlesize": 9.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}
_LEGEND_COLUMNS = 3
_COLOURS = 128
"""Colours of a picture: enough for lines, their smoothed edges and text, at a quarter of the bytes."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure with its words; nothing is drawn until `png`.

    Equal drawings give equal bytes.
    """

    title: str
    caption: str
    alt: str
    """Text for readers who cannot see the figure."""
    paint: "Callable[[Figure], object]"
    width_in: float = 7.6
    height_in: float = 3.0

    def png(self) -> bytes:
        """Draw the figure on white, without a display or global state.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        try:
            import matplotlib
            from matplotlib.figure import Figure
            from matplotlib.layout_engine import ConstrainedLayoutEngine
            from PIL import Image
        except ModuleNotFoundError as error:
            raise MissingExtraError("matplotlib", "report") from error
        with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]  # the stubs want every key as a literal
            figure = Figure((self.width_in, self.height_in), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))
            self.paint(figure)
            stream = io.BytesIO()
            figure.savefig(stream, format="png", dpi=130, metadata={"Software": None})
        with Image.open(stream) as image:
            few = image.convert("RGB").quantize(_COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        stream = io.BytesIO()
        few.save(stream, "PNG", optimize=True)
        return stream.getvalue()


def line_styles() -> Iterator[tuple[str, str]]:
    """Yield the dash pattern and colour of one line after another, endlessly; colours change first."""
    return itertools.cycle(itertools.product(("-", "--", ":"), _LINES))


def si_ticks(axis: "Axis", unit: str = "") -> None:
    """Write few ticks, with prefixes: 2 M, 30 TFLOP."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(EngFormatter(unit))


def panels(figure: "Figure", count: int, columns: int) -> "list[Axes]":
    """Return `count` axes in rows of `columns`; places left over in the last row stay empty."""
    rows = -(-count // columns)
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for spare in axes[count:]:
        spare.remove()
    return axes[:count]


def legend_above(figure: "Figure", axes: "Sequence[Axes]") -> None:
    """Draw one legend for all panels, above them, with each label once."""
    handles = {label: handle for each in axes for handle, label in zip(*each.get_legend_handles_labels(), strict=True)}
    rows = -(-len(handles) // _LEGEND_COLUMNS)
    if handles:
        columns = -(-len(handles) // rows)
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=columns)


def write_message(axes: "Axes", sentence: str) -> None:
    """Write words in place of a plot."""
    axes.text(0.5, 0.5, sentence, transform=axes.transAxes, ha="center", va="center", wrap=True)
    axes.set_xticks([])
    axes.set_yticks([])

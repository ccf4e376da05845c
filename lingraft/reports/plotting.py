"""What the report's plots are drawn on: inline SVG in the page's own colours, so that it is legible in the dark."""

import html
import io
import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lingraft.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

_WIDTH_IN = 4.8
# Okabe and Ito's colours, which colour-blind readers can tell apart; the page lightens them in the dark.
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
_INK = "#010101"
"""Stands for the colour of the page's text."""
_LINES = [COLOURS[name] for name in ("blue", "orange", "green", "purple", "red", "sky")]
_STYLE = {
    "font.size": 9.5,
    "legend.fontsize": 9,
    "legend.handlelength": 1.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "svg.fonttype": "none",
    "svg.hashsalt": "lingraft",
}


def base_style(ink: str) -> dict[str, Any]:
    """Matplotlib's settings that all our figures share: few lines, grey axes, words in one colour.

    Args:
        ink: colour of the words.
    """
    return {
        "legend.frameon": False,
        "text.color": ink,
        "text.parse_math": False,
        "axes.edgecolor": COLOURS["grey"],
        "axes.labelcolor": ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": COLOURS["grid"],
        "grid.linewidth": 0.7,
        "xtick.color": COLOURS["grey"],
        "ytick.color": COLOURS["grey"],
        "xtick.labelcolor": ink,
        "ytick.labelcolor": ink,
    }


@dataclass(frozen=True)
class Plot:
    """One figure of the page."""

    title: str
    caption: str
    svg: str


def draw_plot(title: str, caption: str, alt: str, paint: "Callable[[Axes], None]", height_in: float = 3.0) -> Plot:
    """Paint a figure without a display or global state.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("matplotlib", "report") from error
    with (
        matplotlib.rc_context(base_style(_INK) | _STYLE),  # type: ignore[arg-type]  # the stubs want every key as a literal
        warnings.catch_warnings(),
    ):
        # Text is drawn by the browser, which has fonts for scripts that Matplotlib's own lacks.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font")
        warnings.filterwarnings("ignore", r"Matplotlib currently does not support .* natively")
        figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
        paint(figure.subplots())
        stream = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=nothing)
    return Plot(title, caption, _inline_svg(stream.getvalue(), title, alt))


def _inline_svg(svg: str, title: str, alt: str) -> str:
    """SVG for the middle of a page: ids of its own, the page's colours, a text for those who cannot see it."""
    prefix = re.sub(r"\W", "-", title.lower())
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    for name, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    svg = svg.replace(_INK, "currentColor")
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(alt)}"', 1)


def si_ticks(axis: "Axis", unit: str = "") -> None:
    """Few ticks, written with prefixes: 2 M, 30 TFLOP."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(EngFormatter(unit))


def percent_ticks(axis: "Axis") -> None:
    """Ticks of shares, written as percentages with no more decimals than they need."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))


def line_styles() -> Iterator[tuple[str, str]]:
    """Dash pattern and colour of one line after another, endlessly; colours first."""
    return itertools.cycle(itertools.product(("-", "--", ":"), _LINES))

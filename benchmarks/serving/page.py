"""Results of the serving benchmark: a page in Markdown and a plot, beside the records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.pages import write_page
from benchmarks.serving import aims, pipelines, streams
from benchmarks.serving.aims import Aim
from benchmarks.serving.made import PRECISIONS
from benchmarks.serving.sections import GIB, SECTIONS, Told, load
from lingraft.bundle.format import TABLE_FORMATS
from lingraft.reports.plotting import COLOURS, Drawing, write_message
from lingraft.tables import markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NOT_RUN = "Not run."


def write(told: Told, folder: Path) -> None:
    """Write page, records and plot."""
    write_page(folder / told.name, told._asdict(), page(told), plot(told).png())


def page(told: Told) -> str:
    """Return the page in Markdown."""
    made = aims.aims(told.found, told.bound_ms)
    machine = ", ".join(f"{name} {value}" for name, value in sorted(told.machine.items()))
    parts = [
        "# Serving",
        f"`{told.command}`: {told.plan}. Random weights, since speed and memory do not depend on what they are; what "
        "number formats cost is measured on a trained model. Machine: "
        f"{machine}. Every side has as many threads as this process may use cores. Code: "
        f"{told.commit or 'outside a repository'}.",
        _verdict(made),
        _aims(made),
        f"![Memory, throughput and latency]({told.name}.png)",
    ]
    for name, (title, section) in SECTIONS.items():
        parts += [f"## {title}", section(told) if name in told.found else _NOT_RUN]
    parts += ["## Load of the machine", load(told.found)]
    return "\n\n".join(parts) + "\n"


def _verdict(made: Sequence[Aim]) -> str:
    measured = [aim.met for aim in made if aim.met is not None]
    left = len(made) - len(measured)
    return f"**{sum(measured)} of {len(measured)} aims that were measured are met; {left} were not measured.**"


def _aims(made: Sequence[Aim]) -> str:
    said = {True: "met", False: "**missed**", None: "not measured"}
    rows = [[aim.what, aim.aim, aim.reached, said[aim.met]] for aim in made]
    return markdown_table(["", "aim", "reached", ""], rows)


def plot(told: Told) -> Drawing:
    """Memory, throughput by clients, and rates against pipelines; panels of parts that were not run stay away."""
    panels = {"memory": _draw_memory, "streams": _draw_streams, "pipelines": _draw_rates}
    there = {name: draw for name, draw in panels.items() if name in told.found}

    def paint(figure: "Figure") -> None:
        if not there:
            write_message(figure.subplots(), _NOT_RUN)
            return
        for axes, (name, draw) in zip(figure.subplots(1, len(there), squeeze=False)[0], there.items(), strict=True):
            draw(axes, told.found[name])

    alt = "Bars and lines: memory, throughput, rates."
    return Drawing(title="Serving", caption="", alt=alt, paint=paint, height_in=2.8, file=told.name)


def _draw_memory(axes: "Axes", one: dict[str, Any]) -> None:
    sizes = {
        f"{one['wanted']}\nsessions": one["separate_bytes"],
        **{tables: one["served"][tables] for tables in TABLE_FORMATS},
    }
    _bars(axes, {name: size / GIB for name, size in sizes.items()}, "memory, GiB")


def _draw_streams(axes: "Axes", one: dict[str, Any]) -> None:
    clients = sorted(map(int, one["loads"]))
    for side, colour in zip((streams.MIXED, streams.SINGLE, streams.SEPARATE), ("blue", "green", "grey"), strict=True):
        rates = [one["loads"][str(count)][side]["texts_per_s"] for count in clients]
        axes.plot(clients, rates, "o-", color=COLOURS[colour], label=side)
    axes.set_xlabel("clients")
    axes.set_title("texts/s")
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.legend()


def _draw_rates(axes: "Axes", one: dict[str, Any]) -> None:
    rates = {name: one["texts_per_s"][name] for name in (pipelines.PIPELINE, *PRECISIONS)}
    _bars(axes, rates, "texts/s, from text to labels")


def _bars(axes: "Axes", values: Mapping[str, float], title: str) -> None:
    colours = [COLOURS["grey"], *[COLOURS["blue"]] * (len(values) - 1)]
    axes.bar_label(axes.bar([*values], [*values.values()], color=colours), fmt="%.1f", padding=2)
    axes.set_title(title)
    axes.margins(y=0.15)

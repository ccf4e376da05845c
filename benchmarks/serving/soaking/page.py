"""The soak as a page: a table, a picture, and the record."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.pages import write_page
from lingraft.reports.plotting import COLOURS
from lingraft.tables import markdown_table

NAME = "serving-soak"
_MIB = 2**20
_NAMES = {
    "pss_bytes": "memory (PSS)",
    "rss_bytes": "memory (RSS)",
    "own_bytes": "memory of no file",
    "descriptors": "open files",
    "sockets": "sockets",
    "threads": "threads",
}


def write(found: dict[str, Any], folder: Path | None) -> str:
    """Write the page, its picture and the record, if there is a folder for them; returns the page."""
    text = page(found)
    if folder:
        write_page(folder / NAME, found, text, draw(found))
    return text


def page(found: dict[str, Any]) -> str:
    """Return the page in Markdown."""
    parts = ["# Soak of the endpoint", _setting(found), _load(found), _table(found)]
    parts += [f"![Latency and memory over time]({NAME}.png)", "## What may grow", _growth(found), _fit(found)]
    parts += ["## Changes", _changes(found)]
    if found["problems"]:
        parts += ["## What was wrong", "\n".join(f"- {each}" for each in found["problems"])]
    return "\n\n".join(parts) + "\n"


def _setting(found: dict[str, Any]) -> str:
    settings, size = found["settings"], found["settings"]["size"]
    half, tenth = np.percentile(found["others"] or [0.0], [50, 90])
    return (
        f"`python -m benchmarks.serving.soak --minutes {settings['minutes']:g}` on {found['machine']['device']}; code "
        f"{found['commit']}. {size['layers']} layers of width {size['width']}, tables of {size['rows']:,} rows, random "
        "weights. The server follows a folder of publications, written by hand and, from a real MLflow server, "
        "by `lingraft publish champion`. All of that, and the load generator, shared these cores with other programs, "
        f"which took {half:.0%} of them in the median, and {tenth:.0%} or more in a tenth of the time. "
        "What they took when capacity was measured was not what they took all the time, so that the server was nearer "
        "to its capacity at some times than at others; the picture shows when."
    )


def _load(found: dict[str, Any]) -> str:
    settings = found["settings"]
    return (
        f"Capacity is what {settings['clients']} clients got that asked again once they were answered. The soak's "
        f"requests came by Poisson arrivals at {settings['share']:.0%} of it, whatever answers took, half over REST "
        "and half over gRPC, of one to four texts, languages mixed. Latency counts from when a request was due, "
        f"also if it had to wait because {settings['at_once']} of its protocol were under way. Every "
        "answer was held to what each version says to its texts: all of it had to be from one version that could stand "
        "at that moment."
    )


def _fit(found: dict[str, Any]) -> str:
    places = len({each["name"] for each in found["changes"]})
    return (
        f"Between two changes the median counts. Each moment of the cycle of {places} changes has a level of its own: "
        "the server holds more tables in some than in others, and one straight line is fitted to all. The first "
        f"{found['warm_up_s']:.0f} s are warm-up and do not count: memory goes up until threads and allocators met "
        "their largest batches. PSS has no bound: it also changes when another program that has loaded the same "
        "libraries comes or goes. RSS counts them whole."
    )


def _table(found: dict[str, Any]) -> str:
    latency, answers, refused = (
        found["latency"],
        found["answers"],
        [each for each in found["changes"] if each["refused"]],
    )
    rows: dict[str, str] = {
        "capacity, requests/s": f"{found['capacity_per_s']:.1f}",
        "asked for, requests/s": f"{found['rate_per_s']:.1f}",
        "seconds": f"{found['elapsed_s']:.0f}",
        "answers over REST": f"{answers['rest']:,}",
        "answers over gRPC": f"{answers['grpc']:,}",
        "**wrong, mixed or failed answers**": f"**{found['faults']['count']}**",
        "latency p50, ms": f"{latency['p50_ms']:.1f}",
        "latency p99, ms": f"{latency['p99_ms']:.1f}",
        "longest, ms": f"{latency['most_ms']:.0f}",
        "changes": f"{len(found['changes'])}",
        "bad versions offered, all refused": f"{len(refused)}",
        "sockets left when the clients had gone": f"{found['sockets_left']}",
        "share of a core that the server took": f"{found['server_share']:.0%}",
    }
    return markdown_table(["", ""], rows.items())


def _growth(found: dict[str, Any]) -> str:
    if not found["grown"]:
        return "The soak was too short: no moment came twice after the warm-up."
    rows = []
    for name, title in _NAMES.items():  # records sort their keys
        if name not in found["grown"]:
            continue
        each = found["grown"][name]
        unit, scale = (" MiB", _MIB) if name.endswith("_bytes") else ("", 1)
        values = [f"{each[key] / scale:.2f}{unit}" for key in ("level", "grown", "error")]
        values.append("-" if each["bound"] is None else f"{each['bound'] / scale:.2f}{unit}")
        rows.append([title, *values])
    return markdown_table(["", "level", "grown", "error", "allowed"], rows)


def _changes(found: dict[str, Any]) -> str:
    by_name: dict[str, list[float]] = {}
    for each in found["changes"]:
        by_name.setdefault(each["name"], []).append(each["elapsed_s"])
    rows = [[name, f"{len(taken)}", f"{np.median(taken):.2f}", f"{max(taken):.2f}"] for name, taken in by_name.items()]
    table = markdown_table(["change", "times", "s, median", "s, longest"], rows)
    return f"{table}\n\nSeconds are from the order until the server has said what it made of it."


def draw(found: dict[str, Any]) -> Figure:
    """Draw latency and memory over time, with a line for every change."""
    figure = Figure(figsize=(10, 6), layout="constrained")
    latency, memory = figure.subplots(2, 1, sharex=True)
    at_min = [each["at_s"] / 60 for each in found["latencies"]]
    for name, colour in (("p50_ms", "blue"), ("p99_ms", "orange")):
        latency.plot(at_min, [each[name] for each in found["latencies"]], color=COLOURS[colour], label=name[:3])
    latency.set_yscale("log")
    latency.set_ylabel("latency, ms")
    for place, (name, colour) in enumerate((("PSS", "green"), ("RSS", "purple"), ("of no file", "sky")), start=1):
        values = [each[place] / _MIB for each in found["samples"]]
        memory.plot([each[0] / 60 for each in found["samples"]], values, color=COLOURS[colour], label=name, lw=1.2)
    memory.axvspan(0, found["warm_up_s"] / 60, color=COLOURS["grid"], alpha=0.5, lw=0, label="warm-up")
    memory.set_ylabel("memory of the server, MiB")
    memory.set_ylim(bottom=0)
    memory.set_xlabel("minutes")
    for axes in (latency, memory):
        _mark(axes, found["changes"])
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, ncols=6, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def _mark(axes: Axes, changes: list[dict[str, Any]]) -> None:
    for refused, colour, label in ((False, "grey", "change"), (True, "red", "bad version refused")):
        at_min = [each["at_s"] / 60 for each in changes if each["refused"] is refused]
        axes.vlines(
            at_min, 0, 1, transform=axes.get_xaxis_transform(), color=COLOURS[colour], lw=0.6, alpha=0.6, label=label
        )

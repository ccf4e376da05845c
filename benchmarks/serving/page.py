"""The page of the serving benchmark, from its record."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.serving import latency, throughput
from lingraft.bundle.format import TABLE_FORMATS
from lingraft.tables import markdown_table

_GIB = 2**30


def page(record: Mapping[str, Any]) -> str:
    """Return the page in Markdown.

    Args:
        record: command, plan, machine and commit, and what was found, by part.
    """
    machine = ", ".join(f"{name} {value}" for name, value in sorted(record["machine"].items()))
    sections = {"memory": _memory, "latency": _latency, "throughput": _throughput}
    parts = [
        "# Serving",
        f"`{record['command']}`: {record['plan']}, random weights. Machine: {machine}. Code: "
        f"{record['commit'] or 'outside a repository'}.",
        *(part for name, section in sections.items() if name in record["found"] for part in section(record["found"])),
    ]
    return "\n\n".join(parts) + "\n"


def _memory(found: Mapping[str, Any]) -> Iterator[str]:
    one = found["memory"]
    opened, wanted = len(one["separate"]) - 1, one["wanted"]
    yield "## Memory"
    yield (
        "Proportional set size of one process, once every row of every table has been read. Ours is the whole server, "
        f"but for its detection of languages: before anything is loaded it takes {one['server'] / _GIB:.2f} GiB. "
        f"Separate sessions are plain ONNX Runtime, each on a model with weights and table in one file; {opened} were "
        f"opened, and {wanted} are extrapolated by a straight line if that is fewer."
    )
    rows = [[f"{wanted} separate sessions", "", f"{one['separate_bytes'] / _GIB:.2f}", ""]]
    for tables in TABLE_FORMATS:
        size = one["served"][tables]
        ratio = f"{one['separate_bytes'] / size:.2f}"
        rows.append([f"ours, {tables}", f"{one['tables'][tables] / _GIB:.2f}", f"{size / _GIB:.2f}", ratio])
    yield markdown_table(["", "tables GiB", "GiB", "separate / ours"], rows)


def _latency(found: Mapping[str, Any]) -> Iterator[str]:
    one = found["latency"]
    yield "## Latency"
    yield (
        f"One text, median milliseconds of {one['rounds']} rounds in which all sides take turns; the client's own work "
        "is included. The fixed model is one language's, under plain ONNX Runtime. *small* is a body of 2 x 64."
    )
    rows = [
        [shape, length, *(f"{each[side]:.2f}" for side in latency.SIDES)]
        for shape in ("served", "small")
        for length, each in _by_number(one[shape])
    ]
    yield markdown_table(["shape", "tokens", *latency.SIDES], rows)


def _throughput(found: Mapping[str, Any]) -> Iterator[str]:
    one = found["throughput"]
    sides = (throughput.MIXED, throughput.SINGLE)
    yield "## Throughput"
    yield (
        f"{one['texts']} texts of {throughput.SHORTEST} to {throughput.LONGEST} tokens over REST: texts a second, and "
        "the 95th percentile of latency in ms, by number of clients that each wait for an answer; medians of "
        f"{one['rounds']} rounds."
    )
    rows = [
        [clients, *(f"{each[side]['texts_per_s']:.1f} ({each[side]['p95_ms']:,.0f})" for side in sides)]
        for clients, each in _by_number(one["loads"])
    ]
    yield markdown_table(["clients", *sides], rows, left=0)


def _by_number(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Records sort their keys as words."""
    return sorted(found.items(), key=lambda pair: int(pair[0]))

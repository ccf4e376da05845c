"""The sections of the serving benchmark's page: what each part did, and its tables."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmarks.serving import body, latency, overhead, pipelines, streams
from lingraft.bundle.format import PRECISIONS, TABLE_FORMATS
from lingraft.tables import markdown_table

GIB, _MB = 2**30, 1e6


class Told(NamedTuple):
    """Contents of a page."""

    command: str
    plan: str
    machine: Mapping[str, str]
    commit: str | None
    bound_ms: float
    found: dict[str, Any]
    """Measurements by part; each has the load of the machine as `load_average`, before and after."""
    name: str = "serving"
    """Name of the page's files."""


def _memory(told: Told) -> str:
    one = told.found["memory"]
    opened, wanted = len(one["separate"]) - 1, one["wanted"]
    fit = f"{opened} were opened one after the other" + (
        f", and {wanted} extrapolated by a straight line" if opened < wanted else ""
    )
    rows = [[f"{wanted} separate sessions", "", _gib(one["separate_bytes"]), "", ""]]
    for tables in TABLE_FORMATS:
        size = one["served"][tables]
        times = [f"{other / size:.2f}" for other in (one["separate_bytes"], one["weights"])]
        rows.append([f"ours, {tables}", _gib(one["tables"][tables]), _gib(size), *times])
    return (
        "Proportional set size of one process, once every row of every table has been read and what was freed has "
        "gone back to the system. Ours is the whole "
        f"server but for its detection of languages: before anything is loaded it takes {_gib(one['server'])} GiB. "
        f"Separate sessions are plain ONNX Runtime, each on a model with weights and table of its own in one file, "
        f"which is read whole when it is opened; {fit}. *weights* are these files alone, {_gib(one['weights'])} GiB, "
        "without what a session takes besides: less cannot be, whatever the runtime.\n\n"
        + markdown_table(["", "tables GiB", "GiB", "separate / ours", "weights / ours"], rows)
    )


def _latency(told: Told) -> str:
    one = told.found["latency"]
    sides = TABLE_FORMATS
    rows = [
        [length, f"{each[latency.FIXED]:.2f}", *(_timed(each[side], each[latency.FIXED]) for side in sides)]
        for length, each in _by_number(one["ms"])
    ]
    head = ["tokens", "a fixed model, ms", *(f"{side} tables, ms" for side in sides)]
    return (
        f"Batch 1, from token ids to logits, medians of {one['rounds']} rounds in which all sides take turns; each "
        "round is in another language. The fixed model is one language's, with its table inside, under plain ONNX "
        "Runtime.\n\n" + markdown_table(head, rows, left=0)
    )


def _timed(value_ms: float, floor_ms: float) -> str:
    return f"{value_ms:.2f} ({value_ms / floor_ms:.2f}x)"


def _streams(told: Told) -> str:
    one = told.found["streams"]
    sides = [streams.MIXED, streams.SINGLE, streams.SEPARATE]
    rows = [
        [clients, *(f"{each[side]['texts_per_s']:.1f} ({each[side]['p95_ms']:,.0f})" for side in sides)]
        for clients, each in _by_number(one["loads"])
    ]
    return (
        f"{one['texts']} texts of {streams.SHORTEST} to {streams.LONGEST} tokens through the server's queue, texts a "
        "second and, in parentheses, the 95th percentile of latency in ms, by number of clients that each wait for "
        f"an answer; medians of {one['rounds']} rounds. Separate sessions ("
        f"{one['sessions']} of them) stand behind the same queue, and batch texts of their own language only. Aims "
        f"compare the best load of each side with 95% of answers within {told.bound_ms:g} ms.\n\n"
        + markdown_table(["clients", "mixed languages", "one language", "separate sessions"], rows, left=0)
    )


def _pipelines(told: Told) -> str:
    one = told.found["pipelines"]
    rates = one["texts_per_s"]
    rows = [[name, f"{rate:.1f}", f"{rate / rates[pipelines.PIPELINE]:.2f}"] for name, rate in rates.items()]
    tuned = ", ".join(f"{size}: {rate:.1f}" for size, rate in _by_number(one["tuned"]))
    return (
        f"{one['texts']} texts, {one['tokens']:,} tokens, from text to labels, medians of {one['rounds']} rounds in "
        "turns. The pipeline (PyTorch, fp32) takes a text at a time unless it is told otherwise; here it has the best "
        f"of these batch sizes, each tried once on the first {pipelines.TUNED_ON} texts, in texts a second: "
        f"{tuned}. Ours is the endpoint with its tokenizing, queue and answers, without its transports, in fp32 and "
        "with an int8 body. The aim names no batch size: it was held to the best one first, and the row of one text at "
        "a time was added once that result was known.\n\n" + markdown_table(["", "texts/s", "/ pipeline"], rows)
    )


def _adding(told: Told) -> str:
    one = told.found["adding"]
    rows = [
        [tables, f"{each['table'] / _MB:.1f}", f"{each['added'] / _MB:.1f}", f"{each['added'] / each['table']:.2f}"]
        for tables, each in ((tables, one["memory"][tables]) for tables in TABLE_FORMATS)
    ]
    return (
        "Memory of a language added to all tasks, once every row has been read; "
        "the slope over six languages, one after the other:\n\n"
        + markdown_table(["tables", "table MB", "added MB", "added / table"], rows)
    )


def _loading(told: Told) -> str:
    seconds = told.found["loading"]["seconds"]
    return (
        "Seconds from the first call that loads the language until all tasks have answered in it, rightly.\n\n"
        + markdown_table(
            ["round", *map(str, range(1, len(seconds) + 1))], [["s", *(f"{each:.2f}" for each in seconds)]]
        )
    )


def _overhead(told: Told) -> str:
    one = told.found["overhead"]
    rows = [
        [shape, length, *(f"{each[side]:.2f}" for side in (overhead.BARE, overhead.REST, overhead.GRPC))]
        + [f"{each[side] - each[overhead.BARE]:.2f}" for side in (overhead.REST, overhead.GRPC)]
        for shape in ("served", "small")
        for length, each in _by_number(one[shape])
    ]
    head = ["shape", "tokens", "bare ms", "REST ms", "gRPC ms", "REST adds ms", "gRPC adds ms"]
    return (
        f"One text a request on one connection, medians of {one['rounds']} rounds in turns, the client's own work "
        "included. The bare session is plain ONNX Runtime on the same ids. *small* is a body of 2 x 64.\n\n"
        + markdown_table(head, rows)
    )


def _losses(told: Told) -> str:
    one = told.found["losses"]
    rows = [
        [tables, precision, *map(_loss, one["parity"][tables][precision].values())]
        for tables, precision in itertools.product(TABLE_FORMATS, PRECISIONS)
    ]
    languages = list(one["parity"]["float32"]["fp32"])
    shape = one["shape"]
    return (
        f"A trained primary of {shape['layers']} x {shape['width']}, and embeddings adapted to it: masked tokens "
        "found under ONNX Runtime, in %, and points lost against PyTorch in float32, on held-out blocks "
        f"({_counted(one['blocks'])}).\n\n" + markdown_table(["tables", "body", *languages], rows, left=2)
    )


def _counted(blocks: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {language}" for language, count in sorted(blocks.items()))


def _loss(each: Mapping[str, float]) -> str:
    return f"{100 * each['score']:.2f} ({100 * each['loss']:+.3f})" if "score" in each else "-"


def _body(told: Told) -> str:
    return (
        "From token ids to logits, medians of rounds in turns. `exporter` is torch.onnx.export's graph with the "
        "table as an input, which bundles had before.\n\n" + body.table(told.found["body"]["ms"])
    )


def load(found: Mapping[str, Any]) -> str:
    """Return the section on the load of the machine."""
    rows = [[name, *(f"{value:.1f}" for value in one["load_average"])] for name, one in found.items()]
    return (
        "Processes that wanted to run, over the last minute, before and after each part; what is above our own took "
        "part of the cores.\n\n" + markdown_table(["part", "before", "after"], rows)
    )


def _by_number(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Records sort their keys as words."""
    return sorted(found.items(), key=lambda pair: int(pair[0]))


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"


SECTIONS: Mapping[str, tuple[str, Callable[[Told], str]]] = {
    "memory": ("Memory", _memory),
    "latency": ("Latency", _latency),
    "streams": ("Throughput", _streams),
    "pipelines": ("Against Hugging Face pipelines", _pipelines),
    "adding": ("Adding a language", _adding),
    "loading": ("Loading a language into a running server", _loading),
    "overhead": ("The server's overhead", _overhead),
    "losses": ("What number formats cost", _losses),
    "body": ("The body's graph", _body),
}

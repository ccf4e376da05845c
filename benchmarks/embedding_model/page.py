"""The page of the benchmark of embedding models, made from its record."""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.embedding_model import memory, speed
from lingraft.bundle.format import TABLE_FORMATS
from lingraft.tables import markdown_table, percent

_FLOAT32, _INT8 = (speed.OURS[precision] for precision in ("fp32", "int8"))
_BATCHES, _PEERS = (speed.MIXED, speed.SINGLE), (speed.ONNX, speed.TORCH)
_MILLION = 1_000_000


def page(found: Mapping[str, Any]) -> str:
    """Return the page in Markdown; parts that were not run are left out."""
    machine = ", ".join(f"{name} {value}" for name, value in sorted(found["machine"].items()))
    parts = [
        "# Embedding models",
        f"`{found['command']}`: {found['plan']}, with random weights, on which neither speed nor memory depends. "
        f"Machine: {machine}. All sides have as many threads as the process may use cores. Processes that wanted to "
        f"run, over the last minute: {_loads(found['parts'])}. Code: {found['commit']}.",
    ]
    for name, section in _SECTIONS.items():
        if name in found["parts"]:
            parts += section(found["parts"][name])
    return "\n\n".join(parts) + "\n"


def _loads(parts: Mapping[str, Any]) -> str:
    loads = [load for part in parts.values() for load in part["load_average"]]
    return f"{min(loads):.1f} to {max(loads):.1f}"


def _adding(one: Mapping[str, Any]) -> list[str]:
    shortest, longest = one["tokens"]
    count, rate = one["passages"], one["passages"] / one["embedding"]["cpu_s"]
    before, after = one["sha256"]
    same = "is the same" if before == after else "**has changed**"
    anew = {clock: one["embedding"][clock] + one["indexing"][clock] for clock in one["adding"]}
    rows = [
        ["vectors embedded", "0", f"{count:,}"],
        ["seconds", f"{one['adding']['elapsed_s']:.2f}", f"{anew['elapsed_s']:,.0f}"],
        ["seconds of a processor", f"{one['adding']['cpu_s']:.2f}", f"{anew['cpu_s']:,.0f}"],
        ["megabytes written or loaded", _mb(one["table_bytes"]), _mb(one["index_bytes"])],
        [
            "for 1 million vectors, extrapolated",
            "none embedded",
            f"{_MILLION / rate / 3600:.1f} hours of a processor, at {rate:,.0f} vectors a second",
        ],
    ]
    return [
        "## A new language in an index",
        f"{count:,} passages of {shortest} to {longest} tokens are embedded by the endpoint's body, in batches of like "
        "lengths, and stored in an index of FAISS. Then a language is added to the running "
        "endpoint: its files are checked, its self-test runs, and a first query is embedded. The index's file "
        f"{same} after {one['queries']:,} queries in that language (SHA-256 `{after[:12]}`). The language is the first "
        f"one in other letters with equal rows, so that each query has one right passage: {percent(one['found'])} of "
        f"queries find it first in the index, and {percent(one['found_exactly'])} by all products.",
        markdown_table(["", "new language", "index anew"], rows),
    ]


def _speed(one: Mapping[str, Any]) -> list[str]:
    # Records sort their keys.
    cases = {name: one["cases"][name] for name in (speed.ONE, *_BATCHES)}
    base = {name: case[speed.TORCH]["texts_per_s"] for name, case in cases.items()}
    rows = [
        [
            side,
            *(
                cell
                for name, case in cases.items()
                for cell in (
                    f"{case[side]['texts_per_s']:,.0f} ({case[side]['texts_per_s'] / base[name]:.2f})",
                    f"{case[side]['p50_ms']:,.0f}, {case[side]['p95_ms']:,.0f}",
                )
            ),
        ]
        for side in (*speed.OURS.values(), *_PEERS)
    ]
    sizes = ", ".join(f"{one['batch_sizes'][name]} in {name.rpartition(', ')[2]}" for name in _PEERS)
    worst = max(one["difference"][side] for side in (_FLOAT32, speed.ONNX))
    (few, many), (short, long) = speed.QUERY_TOKENS, speed.TEXT_TOKENS
    head = ["", *(cell for name in cases for cell in (f"{name}: texts/s", "p50, p95 ms"))]
    return [
        "## Speed",
        f"From texts to vectors in one process, sides in turns on the same texts: {one['rounds']} queries of {few} to "
        f"{many} tokens one by one, and {one['batches']} batches of {speed.BATCH_TEXTS} texts of {short} to {long} "
        "tokens. In parentheses: times the rate of sentence-transformers in PyTorch. The endpoint includes its checks, "
        "queue and threads, and no transport. sentence-transformers has fused attention, its fastest batch size "
        f"({sizes}), and a model of each language, which embeds its share of a batch. *ONNX Runtime* runs the graph "
        "that PyTorch exports of its encoder; the package's own ONNX backend does not install beside transformers 5. "
        f"Vectors in float32 differ by {worst:.1g} at most; by {one['difference'][_INT8]:.1g} with the body in int8.",
        markdown_table(head, rows),
    ]


def _memory(one: Mapping[str, Any]) -> list[str]:
    count = len(one[memory.SEPARATE]) - 1
    separate = one[memory.SEPARATE][count]
    sizes = {
        f"{count} models of sentence-transformers": separate,
        f"{count} of them with one body in memory": one[memory.SHARED][count],
        "1 model of sentence-transformers": one[memory.SEPARATE][1],
        **{f"endpoint, {count} languages, {tables} tables": one["served"][tables] for tables in TABLE_FORMATS},
    }
    rows = [[name, _mb(size), f"{separate / size:.2f}"] for name, size in sizes.items()]
    return [
        "## Memory",
        "Resident memory of a process of its own, once every weight has been read. Without a model, the endpoint "
        f"takes {_mb(one['server'])} MB, and sentence-transformers {_mb(one[memory.SEPARATE][0])} MB. One "
        "body for many models is what the [guide](../guides/import-a-model.md#export) makes of exported folders.",
        markdown_table(["", "MB", f"{count} models / this"], rows),
    ]


_SECTIONS: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "adding": _adding,
    "speed": _speed,
    "memory": _memory,
}


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f}"

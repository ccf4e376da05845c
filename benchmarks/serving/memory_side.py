"""One side of the comparison of memory, as a process of its own, which prints a line of JSON a step.

    python -m benchmarks.serving.memory_side bundles DIR ...
    python -m benchmarks.serving.memory_side separate COUNT MODEL ...

What counts is the proportional set size: pages of a mapped file count, once each, and pages that processes share
count in parts. Each side imports what it needs, and no more.
"""

import ctypes
import gc
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.process_tree import held
from lingraft.bundle.runtime import Body
from lingraft.bundle.tables import EmbeddingTable

_CHUNK_ROWS = 4096
_ROW = 16
"""Tokens of the text that each separate model answers."""


def bundles(folders: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """All that the server loads, its golden answers given and every row of every table read."""
    import lingraft.serving.server  # noqa: F401  the whole server counts
    from lingraft.serving.served_bundles import ServedBundles

    yield {"bytes": own_bytes(), "resident": own_bytes("Rss")}
    served = ServedBundles.load(folders)
    tables = {id(each.own_table): each.own_table for one in served.bundles.values() for each in one.languages.values()}
    for table in tables.values():
        read_all(table)
    yield {"bytes": own_bytes(), "resident": own_bytes("Rss"), "tables": sum(table.nbytes for table in tables.values())}


def read_all(table: EmbeddingTable) -> None:
    """Read every row once."""
    for start in range(0, len(table), _CHUNK_ROWS):
        table.rows(np.arange(start, min(start + _CHUNK_ROWS, len(table))))


def separate(count: int, files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """One session more a step, each with weights and a table of its own: read from the file, shared with none.

    A model's table is read whole when it is opened.
    """
    sessions: list[Any] = []
    ids_BT = np.arange(5, 5 + _ROW)[None]
    given = {"input_ids": ids_BT, "attention_mask": np.ones_like(ids_BT)}
    yield {"bytes": own_bytes()}
    for number in range(count):
        sessions.append(Body.open(files[number % len(files)]).session)
        sessions[-1].run(None, given)
        yield {"bytes": own_bytes()}


def own_bytes(measure: str = "Pss") -> int:
    """Return this process's memory, by a measure of `held`.

    What was freed goes back to the system first: else it varies by megabytes.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return held(os.getpid())[measure]


def main() -> None:
    """Print what one side takes."""
    side, *arguments = sys.argv[1:]
    sides = {
        "bundles": lambda: bundles([*map(Path, arguments)]),
        "separate": lambda: separate(int(arguments[0]), [*map(Path, arguments[1:])]),
    }
    for step in sides[side]():
        print(json.dumps(step), flush=True)


if __name__ == "__main__":
    main()

"""Token ids in the shard files of blocks, read without PyTorch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TENSOR = "tokens_NT"
_SMALL_VOCABULARY = 1 << 16
_DTYPES = {"U16": "<u2", "U32": "<u4"}
"""safetensors' names to numpy's."""

Ids = NDArray[Any]
"""Token ids of any integer type."""


def ids_dtype(vocabulary: int) -> "np.dtype[Any]":
    """Return the smallest type that holds the ids of a vocabulary."""
    return np.dtype(np.uint16 if vocabulary <= _SMALL_VOCABULARY else np.uint32)


def map_ids(path: Path) -> Ids:
    """Return the token ids (n, T) of a shard as a view of the file, of which only used pages are read."""
    with path.open("rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
        entry = json.loads(stream.read(header_bytes))[TENSOR]
    begin = 8 + header_bytes + entry["data_offsets"][0]
    # A plain array over the mapping: numpy's memmap class makes a Python object of every row taken.
    return np.asarray(np.memmap(path, _DTYPES[entry["dtype"]], "r", begin, tuple(entry["shape"])))

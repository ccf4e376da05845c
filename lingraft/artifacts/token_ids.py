"""Token ids in the shard files of blocks, read without PyTorch."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingraft.artifacts.tensor_file import map_tensor, tensor_spans

TENSOR = "tokens_NT"
_SMALL_VOCABULARY = 1 << 16

Ids = NDArray[Any]
"""Token ids of any integer type."""


def ids_dtype(vocabulary: int) -> "np.dtype[Any]":
    """Return the smallest type that holds the ids of a vocabulary."""
    return np.dtype(np.uint16 if vocabulary <= _SMALL_VOCABULARY else np.uint32)


def map_ids(path: Path) -> Ids:
    """Return the token ids (n, T) of a shard as a view of the file, of which only used pages are read."""
    # A plain array over the mapping: numpy's memmap class makes a Python object of every row taken.
    return np.asarray(map_tensor(path, tensor_spans(path)[TENSOR]))

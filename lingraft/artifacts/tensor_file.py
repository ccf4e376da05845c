"""Offsets of tensors in a safetensors file, so that they can be memory-mapped.

The format is 8 bytes of header length, a JSON header with the place of each tensor, then the data.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lingraft.errors import ArtifactError

_NUMPY = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "U16": np.uint16,
    "U32": np.uint32,
    "I8": np.int8,
    "I64": np.int64,
    "F16": np.float16,
    "F32": np.float32,
}


class TensorSpan(NamedTuple):
    """One tensor's place in a file."""

    offset: int
    """First byte, from the beginning of the file."""
    nbytes: int
    dtype: str
    """Name of the type in safetensors, such as F32."""
    shape: tuple[int, ...]


def tensor_spans(file: Path) -> dict[str, TensorSpan]:
    """Return the place of each tensor of a safetensors file by its name."""
    with file.open("rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
        header = stream.read(min(header_bytes, file.stat().st_size))
    try:
        entries = {name: entry for name, entry in json.loads(header).items() if name != "__metadata__"}
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ArtifactError(f"{file} is not in the safetensors format: {error}. Make it anew.") from error
    return {name: _span(8 + header_bytes, entry) for name, entry in entries.items()}


def _span(data: int, entry: dict[str, list[int]]) -> TensorSpan:
    start, end = entry["data_offsets"]
    return TensorSpan(data + start, end - start, str(entry["dtype"]), tuple(entry["shape"]))


def map_tensor(file: Path, span: TensorSpan) -> NDArray[np.generic]:
    """Memory-map a tensor read-only: its pages are read when they are used, and shared between processes."""
    if span.dtype not in _NUMPY:
        raise ArtifactError(f"{file} holds values of type {span.dtype}; those read here are {sorted(_NUMPY)}.")
    return np.memmap(file, _NUMPY[span.dtype], "r", span.offset, span.shape)

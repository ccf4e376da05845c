"""The store of one split's blocks: shards of token ids, memory-mapped where they lie, read by row number.

Legend: N blocks, B rows asked for, T tokens of a block. Ids are stored as uint16, or uint32 where the vocabulary
exceeds 65,536, and come out as int64.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lingraft.artifact import Artifact

TENSOR = "tokens_NT"
_DTYPES = {"U16": "<u2", "U32": "<u4", "I32": "<i4"}
"""safetensors' names to numpy's."""

Ids = NDArray[Any]
"""Token ids of any integer type."""


class Shelf(Protocol):
    """Where the shards of a split stand."""

    def shard(self, index: int) -> Ids:
        """Blocks (n, T) of one shard."""
        ...

    def expect(self, indices: Sequence[int]) -> None:
        """Hear which shards are needed soon, in that order."""
        ...


@dataclass(frozen=True)
class Blocks:
    """The blocks of one split, by row number."""

    count: int
    block_tokens: int
    shard_blocks: int
    """Blocks of every shard but the last, which may have fewer."""
    window: int | None
    """Blocks that are shuffled among themselves, a whole number of shards; None: all of them."""
    shelf: Shelf

    def __len__(self) -> int:
        return self.count

    def take(self, rows_B: Tensor) -> Tensor:
        """Blocks (B, T), int64, on the CPU, of the rows asked for, in that order.

        Raises:
            ArtifactError: a shard was truncated or edited, or cannot be fetched.
            IndexError: there is no such row.
        """
        rows = self._rows(rows_B)
        shards = rows // self.shard_blocks
        taken_BT = np.empty((len(rows), self.block_tokens), dtype=np.int64)
        for index in np.unique(shards).tolist():
            here = shards == index
            taken_BT[here] = self.shelf.shard(index)[rows[here] - index * self.shard_blocks]
        return torch.from_numpy(taken_BT)

    def expect(self, rows_B: Tensor) -> None:
        """Make the shards of rows that will be taken soon ready in the background; need not be called."""
        shards = self._rows(rows_B) // self.shard_blocks
        self.shelf.expect(list(dict.fromkeys(shards.tolist())))

    def all(self) -> Tensor:
        """All blocks (N, T), int64; for splits that are small."""
        return self.take(torch.arange(self.count))

    def _rows(self, rows_B: Tensor) -> NDArray[np.int64]:
        rows: NDArray[np.int64] = rows_B.cpu().numpy()
        if len(rows) and not (rows.min() >= 0 and rows.max() < self.count):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {self.count} blocks were asked for")
        return rows


def in_memory(blocks_NT: Tensor) -> Blocks:
    """Blocks that are no artifact, for small text."""
    count, block_tokens = blocks_NT.shape
    return Blocks(count, block_tokens, max(count, 1), None, _Memory(blocks_NT.cpu().numpy()))


@dataclass(frozen=True)
class _Memory:
    """One shard that is there."""

    blocks_NT: Ids

    def shard(self, index: int) -> Ids:
        return self.blocks_NT

    def expect(self, indices: Sequence[int]) -> None:
        """It is there already."""


class LocalShards:
    """Shards of an artifact on disk, each compared with its hash before it is mapped."""

    def __init__(self, artifact: Artifact, names: Sequence[str]) -> None:
        self._artifact = artifact
        self._names = names
        self._mapped: dict[int, Ids] = {}

    def shard(self, index: int) -> Ids:
        if index not in self._mapped:
            self._artifact.verify(self._names[index])
            self._mapped[index] = map_ids(self._artifact.folder / self._names[index])
        return self._mapped[index]

    def expect(self, indices: Sequence[int]) -> None:
        """They are on this machine already."""


def map_ids(path: Path) -> Ids:
    """Token ids (n, T) of a shard, as a view of the file: only what is read comes into memory."""
    with path.open("rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
        entry = json.loads(stream.read(header_bytes))[TENSOR]
    begin = 8 + header_bytes + entry["data_offsets"][0]
    # A plain array over the mapping: numpy's memmap class makes a Python object of every row taken.
    return np.asarray(np.memmap(path, _DTYPES[entry["dtype"]], "r", begin, tuple(entry["shape"])))

"""Blocks of one split, stored in memory-mapped shards of token ids and read by row number.

Legend: N blocks, B rows asked for, T tokens of a block. Ids are stored as uint16, or uint32 where the vocabulary
exceeds 65,536, and come out as int64.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lingraft.artifacts.artifact import Draft
from lingraft.artifacts.token_ids import TENSOR, Ids, ids_dtype

SHARD_BYTES = 64 << 20
"""Bytes of token ids in a full shard."""


@dataclass(frozen=True)
class Blocks:
    """The blocks of one split, by row number."""

    count: int
    block_tokens: int
    shard_blocks: int
    """Number of blocks of every shard but the last, which may have fewer."""
    shard: Callable[[int], Ids]
    """Returns the blocks (n, T) of a shard, by its number."""

    def __len__(self) -> int:
        return self.count

    def take(self, rows_B: Tensor) -> Tensor:
        """Return the blocks (B, T) of the given rows, in that order, int64 on the CPU."""
        rows = self._rows(rows_B)
        shards = rows // self.shard_blocks
        taken_BT = np.empty((len(rows), self.block_tokens), dtype=np.int64)
        for index in np.unique(shards).tolist():
            here = shards == index
            taken_BT[here] = self.shard(index)[rows[here] - index * self.shard_blocks]
        return torch.from_numpy(taken_BT)

    def all(self) -> Tensor:
        """Return all blocks (N, T), int64; for small splits."""
        return self.take(torch.arange(self.count))

    def _rows(self, rows_B: Tensor) -> NDArray[np.int64]:
        rows: NDArray[np.int64] = rows_B.cpu().numpy()
        if len(rows) and not (rows.min() >= 0 and rows.max() < self.count):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {self.count} blocks were asked for")
        return rows


def blocks_in_memory(blocks_NT: Tensor) -> Blocks:
    """Return blocks that are held in memory, for small text."""
    count, block_tokens = blocks_NT.shape
    shard_NT = blocks_NT.cpu().numpy()
    return Blocks(count, block_tokens, max(count, 1), lambda _: shard_NT)


class BlockWriter:
    """Writer of one split of an artifact, shard by shard; `close` writes the rest."""

    def __init__(
        self, draft: Draft, split: str, block_tokens: int, vocabulary: int, shard_bytes: int = SHARD_BYTES
    ) -> None:
        self.dtype, self.block_tokens = ids_dtype(vocabulary), block_tokens
        shard_blocks = max(1, shard_bytes // (block_tokens * self.dtype.itemsize))
        self._draft, self._split = draft, split
        self._shard_NT = np.empty((shard_blocks, block_tokens), self.dtype)
        self._filled = 0
        self.count = 0
        """Number of blocks added so far."""

    def add(self, blocks_NT: Ids) -> None:
        """Append blocks (N, T)."""
        while len(blocks_NT):
            room = self._shard_NT[self._filled : self._filled + len(blocks_NT)]
            room[:], blocks_NT = blocks_NT[: len(room)], blocks_NT[len(room) :]
            self._filled += len(room)
            self.count += len(room)
            if self._filled == len(self._shard_NT):
                self.close()

    def close(self) -> None:
        """Write the remaining blocks, which fill no shard."""
        if self._filled:
            number = (self.count - 1) // len(self._shard_NT)
            shard_NT = torch.from_numpy(self._shard_NT[: self._filled])
            self._draft.tensors(f"{self._split}-{number:05d}", {TENSOR: shard_NT})
            self._filled = 0

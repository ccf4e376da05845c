"""Blocks of one split, stored in memory-mapped shards of token ids and read by row number.

Legend: N blocks, B rows asked for, T tokens of a block. Ids are stored as uint16, or uint32 where the vocabulary
exceeds 65,536, and come out as int64.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lingraft.artifacts.artifact import Artifact, Draft
from lingraft.artifacts.remote import run_in_background
from lingraft.artifacts.token_ids import TENSOR, Ids, ids_dtype, map_ids
from lingraft.data.shuffling import ShuffledIndices

SHARD_BYTES = 64 << 20
"""Bytes of token ids in a full shard."""
WINDOW_SHARDS = 4
"""Shards that are shuffled together; recorded in every artifact, as the data order depends on it."""
_LOOK_EVERY_S = 1.0


class ShardStore(Protocol):
    """Storage of the shards of a split."""

    def get(self, index: int) -> Ids:
        """Return the blocks (n, T) of one shard."""
        ...

    def prefetch(self, indices: Sequence[int]) -> None:
        """Fetch shards in the background, in this order, as far as there is room."""
        ...


class ShardFiles(Protocol):
    """Files that shards are fetched from."""

    async def fetch(self, name: str) -> Ids:
        """Fetch and verify a file, and map it.

        Raises:
            ArtifactError: it was truncated or edited, or cannot be fetched.
        """
        ...

    def evict(self, name: str) -> None:
        """Remove a file from the cache."""
        ...

    def require_progress(self) -> None:
        """Check that a pending `fetch` makes progress; called from another thread.

        Raises:
            ArtifactError: nothing has arrived for too long.
        """
        ...


@dataclass
class Blocks:
    """The blocks of one split, by row number."""

    count: int
    block_tokens: int
    shard_blocks: int
    """Number of blocks of every shard but the last, which may have fewer."""
    window: int | None
    """Number of blocks that are shuffled together, a whole number of shards; None for all."""
    shards: ShardStore
    _followed: int | None = field(default=None, init=False)

    def __len__(self) -> int:
        return self.count

    def take(self, rows_B: Tensor) -> Tensor:
        """Return the blocks (B, T) of the given rows, in that order, int64 on the CPU.

        Raises:
            ArtifactError: a shard was truncated or edited, or cannot be fetched.
            IndexError: there is no such row.
        """
        rows = self._rows(rows_B)
        shards = rows // self.shard_blocks
        taken_BT = np.empty((len(rows), self.block_tokens), dtype=np.int64)
        for index in np.unique(shards).tolist():
            here = shards == index
            taken_BT[here] = self.shards.get(index)[rows[here] - index * self.shard_blocks]
        return torch.from_numpy(taken_BT)

    def all(self) -> Tensor:
        """Return all blocks (N, T), int64; for small splits."""
        return self.take(torch.arange(self.count))

    def prefetch(self, rows_B: Tensor) -> None:
        """Fetch the shards of rows in the background."""
        shards = self._rows(rows_B) // self.shard_blocks
        self.shards.prefetch(list(dict.fromkeys(shards.tolist())))

    def prefetch_from(self, order: ShuffledIndices, place: int) -> None:
        """Fetch in the background the shards of the window at a position of an order, and of the next window.

        It is called in every step, and acts once for as many blocks as a shard has.
        """
        stretch = place // self.shard_blocks
        if stretch != self._followed:
            self._followed = stretch
            window = self.window or self.count
            # One row tells its whole window; steps of a shard miss none but the last window, where that is shorter.
            rows = [int(order.rows(place + ahead, 1)) for ahead in range(0, 2 * window, self.shard_blocks)]
            starts = dict.fromkeys(row - row % window for row in rows)
            self.prefetch(torch.cat([torch.arange(start, min(start + window, self.count)) for start in starts]))

    def _rows(self, rows_B: Tensor) -> NDArray[np.int64]:
        rows: NDArray[np.int64] = rows_B.cpu().numpy()
        if len(rows) and not (rows.min() >= 0 and rows.max() < self.count):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {self.count} blocks were asked for")
        return rows


def blocks_in_memory(blocks_NT: Tensor) -> Blocks:
    """Return blocks that are held in memory, for small text."""
    count, block_tokens = blocks_NT.shape
    return Blocks(count, block_tokens, max(count, 1), None, _InMemoryShard(blocks_NT.cpu().numpy()))


@dataclass(frozen=True)
class _InMemoryShard:
    """Single shard in memory."""

    blocks_NT: Ids

    def get(self, index: int) -> Ids:
        return self.blocks_NT

    def prefetch(self, indices: Sequence[int]) -> None:
        """Do nothing, as the shard is in memory."""


class ShardCache:
    """Shards fetched by a background thread and memory-mapped; the least recently used are evicted."""

    def __init__(self, source: ShardFiles, names: Sequence[str], capacity: int | None = None) -> None:
        """Create an empty cache of shards with these file names, of which at most `capacity` are held at a time."""
        self._source, self._names, self._capacity = source, names, capacity
        self._ready: OrderedDict[int, Future[Ids]] = OrderedDict()
        """Shards that are ready or being fetched, the least recently used first."""
        self._lock = threading.Lock()

    def get(self, index: int) -> Ids:
        """Return the blocks (n, T) of one shard, waiting until it is fetched.

        Raises:
            ArtifactError: it was truncated or edited, or cannot be fetched.
        """
        with self._lock:
            if index not in self._ready:
                self._make_room(set())
                self._begin(index)
            self._ready.move_to_end(index)
            coming = self._ready[index]
        while not coming.done():
            wait([coming], _LOOK_EVERY_S)
            if not coming.done():
                self._source.require_progress()
        return coming.result()

    def prefetch(self, indices: Sequence[int]) -> None:
        """Start to fetch shards in this order, as many as fit into the cache."""
        with self._lock:
            wanted = set(indices[: self._capacity])
            for index in indices[: self._capacity]:
                if index not in self._ready:
                    if not self._make_room(wanted):
                        return
                    self._begin(index)

    def _begin(self, index: int) -> None:
        self._ready[index] = run_in_background(self._source.fetch(self._names[index]))

    def _make_room(self, wanted: set[int]) -> bool:
        """Evict unwanted shards, the least recently used first; return whether there is room for one more."""
        if self._capacity is None:
            return True
        idle = [index for index, coming in self._ready.items() if index not in wanted and coming.done()]
        for index in idle[: max(0, len(self._ready) - self._capacity + 1)]:
            del self._ready[index]
            self._source.evict(self._names[index])
        return len(self._ready) < self._capacity


class LocalShards:
    """Local files of an artifact, each verified against its hash before its first use."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact

    async def fetch(self, name: str) -> Ids:
        """Verify a file, and map it.

        Raises:
            ArtifactError: it was truncated or edited.
        """
        self._artifact.verify(name)
        return map_ids(self._artifact.folder / name)

    def evict(self, name: str) -> None:
        """Keep the file, as it belongs to the artifact."""

    def require_progress(self) -> None:
        """Do nothing, as reads from a disk do not stall."""


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
        """Append blocks (N, T).

        Raises:
            ArtifactError: a shard cannot be written.
        """
        while len(blocks_NT):
            room = self._shard_NT[self._filled : self._filled + len(blocks_NT)]
            room[:], blocks_NT = blocks_NT[: len(room)], blocks_NT[len(room) :]
            self._filled += len(room)
            self.count += len(room)
            if self._filled == len(self._shard_NT):
                self.close()

    def close(self) -> None:
        """Write the remaining blocks, which fill no shard.

        Raises:
            ArtifactError: they cannot be written.
        """
        if self._filled:
            number = (self.count - 1) // len(self._shard_NT)
            shard_NT = torch.from_numpy(self._shard_NT[: self._filled])
            self._draft.tensors(f"{self._split}-{number:05d}", {TENSOR: shard_NT})
            self._filled = 0

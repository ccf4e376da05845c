"""A cache of shard files: fetched by a background thread, memory-mapped, and evicted when the cache is full."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Protocol, TypeVar

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.remote import run_in_background
from lingraft.artifacts.token_ids import Ids, map_ids

Result = TypeVar("Result")

_LOOK_EVERY_S = 1.0


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


class ShardCache:
    """Cache of the shards of a split; the least recently used are evicted."""

    def __init__(self, source: ShardFiles, names: Sequence[str], capacity: int | None = None) -> None:
        """Create an empty cache.

        Args:
            source: files that shards are fetched from.
            names: file name of each shard.
            capacity: most shards on disk and mapped at a time; unlimited if None.
        """
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

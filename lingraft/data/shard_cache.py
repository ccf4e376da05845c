"""Shards that are files: made ready by a thread in the background, mapped, and given up when there is no more room."""

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
    """Where the files come from."""

    async def fetch(self, name: str) -> Ids:
        """Map a file, once it is on this machine and verified.

        Raises:
            ArtifactError: it was truncated or edited, or cannot be brought.
        """
        ...

    def evict(self, name: str) -> None:
        """Make room."""
        ...

    def require_progress(self) -> None:
        """Called from another thread while it waits for `fetch`.

        Raises:
            ArtifactError: nothing has arrived for long.
        """
        ...


class ShardCache:
    """The shards of a split."""

    def __init__(self, source: ShardFiles, names: Sequence[str], capacity: int | None = None) -> None:
        """Say where shards come from.

        Args:
            source: of the files.
            names: of the files, by shard.
            capacity: shards that may be on disk and mapped at a time; any number if absent.
        """
        self._source, self._names, self._capacity = source, names, capacity
        self._ready: OrderedDict[int, Future[Ids]] = OrderedDict()
        """Shards that are there or on their way, the one not used for longest first."""
        self._lock = threading.Lock()

    def get(self, index: int) -> Ids:
        """Blocks (n, T) of one shard, once it is there.

        Raises:
            ArtifactError: it was truncated or edited, or cannot be brought.
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
        """Begin to make shards ready, in this order; those that there is room for."""
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
        """Give shards up that are not wanted, the one not used for longest first; whether there is room for one."""
        if self._capacity is None:
            return True
        idle = [index for index, coming in self._ready.items() if index not in wanted and coming.done()]
        for index in idle[: max(0, len(self._ready) - self._capacity + 1)]:
            del self._ready[index]
            self._source.evict(self._names[index])
        return len(self._ready) < self._capacity


class LocalShards:
    """Files of an artifact on this machine, each compared with its hash before it is used."""

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
        """It stays."""

    def require_progress(self) -> None:
        """A disk answers."""

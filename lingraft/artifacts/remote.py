"""Artifacts in object storage, whose files are fetched when they are needed, into a cache on this machine."""

import asyncio
import contextlib
import functools
import hashlib
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import cache_folder, explain_write_errors, sha256_of, write_bytes
from lingraft.artifacts.locks import try_file_lock
from lingraft.artifacts.manifest import MANIFEST, Kind, read_manifest
from lingraft.artifacts.storage import RemotePath
from lingraft.artifacts.token_ids import Ids, map_ids
from lingraft.errors import ArtifactError, LingraftError
from lingraft.retry import backoff

Result = TypeVar("Result")

FETCH_ATTEMPTS = 6
"""Attempts to fetch a file, over a quarter of a minute; a failure of the last one is an error."""
STALL_S = 120.0
"""Seconds without a byte after which a fetch fails."""
_LOCK_POLL_S = 0.1
_ATTEMPTS = 3
_URI = re.compile(r"([a-z][a-z0-9+.-]+):(/{1,3})(.+)", re.IGNORECASE)


def uri_of(folder: Path | str) -> str | None:
    """Return the URI of a folder such as s3://bucket/blocks; None for a folder on this machine.

    A slash that was lost when the URI became a Path is restored.
    """
    found = _URI.fullmatch(str(folder))
    if not found:
        return None
    scheme, _, rest = found.groups()
    return f"{scheme}://{'/' if scheme == 'file' else ''}{rest}"


def open_remote(uri: str, kind: Kind) -> Artifact:
    """Open the artifact at a URI that fsspec understands; its files are fetched when they are needed.

    Raises:
        ArtifactError: there is no manifest, it is damaged or of another kind, or the storage cannot be reached.
        MissingExtraError: the storage needs a client that is not installed.
    """
    work = functools.partial(_read_manifest, RemotePath.of(uri, ArtifactError) / MANIFEST, uri)
    fetching = run_in_background(_with_retries(work, f"{uri}/{MANIFEST}"))
    try:
        content = fetching.result(STALL_S)
    except TimeoutError as error:
        raise _stalled(uri, STALL_S) from error
    name = hashlib.sha256(uri.encode() + b"\0" + content).hexdigest()[:32]
    folder = cache_folder("blocks") / name
    # Ranks of one training do this at once, and each reads what is there.
    write_bytes(folder / MANIFEST, content)
    manifest = read_manifest(folder)
    if manifest.kind is not kind:
        raise ArtifactError(
            f"{uri} is an artifact of kind {manifest.kind}, but one of kind {kind} is needed here. "
            f"Give the folder of a {kind} artifact."
        )
    return Artifact(folder, manifest, deferred=True, origin=uri)


class RemoteShards:
    """Files of an artifact in object storage, each verified against its hash when it has been fetched.

    Several processes may use one cache: the first one that needs a file fetches it.
    """

    def __init__(self, artifact: Artifact, room: int, stall_s: float = STALL_S) -> None:
        """Open the storage."""
        self._artifact = artifact
        self._room = room
        self._stall_s = stall_s
        self._place = RemotePath.of(str(artifact.origin), ArtifactError)
        self._held: set[str] = set()
        self._moved_at = time.monotonic()

    async def fetch(self, name: str) -> Ids:
        """Fetch a file unless it is cached, and map it.

        Raises:
            ArtifactError: it cannot be fetched, is not what the manifest says, or does not fit on the disk.
        """
        path = self._artifact.folder / name
        self._held.add(name)
        async with self._alone(path):
            for _ in range(_ATTEMPTS):
                # Who clears a cache by hand, or by the clock, asks for no lock: what is gone is fetched again.
                with contextlib.suppress(FileNotFoundError):
                    if not self._is_whole(name):
                        self._make_room()
                        await _with_retries(functools.partial(self._fetch, name), f"{self._artifact.origin}/{name}")
                    return map_ids(path)
        raise ArtifactError(
            f"{path} was removed {_ATTEMPTS} times before it could be read. Find out what removes files there, or set "
            "LINGRAFT_CACHE to another folder."
        )

    def evict(self, name: str) -> None:
        """Remove a file from the cache; a mapped file can still be read."""
        self._held.discard(name)
        _remove_cached(self._artifact.folder / name)

    def require_progress(self) -> None:
        """Check that a pending fetch makes progress.

        Raises:
            ArtifactError: nothing has arrived for `stall_s`.
        """
        if time.monotonic() - self._moved_at > self._stall_s:
            raise _stalled(str(self._artifact.origin), self._stall_s)

    @contextlib.asynccontextmanager
    async def _alone(self, path: Path) -> AsyncIterator[None]:
        while True:
            self._move()
            with try_file_lock(path) as ours:
                if ours:
                    yield
                    return
            await asyncio.sleep(_LOCK_POLL_S)

    def _is_whole(self, name: str) -> bool:
        path = self._artifact.folder / name
        return path.is_file() and sha256_of(path) == self._artifact.manifest.files[name]

    def _make_room(self) -> None:
        """Remove surplus files of earlier programs, the oldest first, except locked ones."""
        there = sorted(self._artifact.folder.glob("*.safetensors"), key=_modified_s)
        surplus = len(there) - self._room + 1
        for path in there:
            if surplus > 0 and path.name not in self._held:
                surplus -= _remove_cached(path)

    def _fetch(self, name: str) -> None:
        from fsspec.callbacks import Callback

        path = self._artifact.folder / name
        coming = path.with_name(f".{name}-{os.getpid()}")
        self._move()
        with explain_write_errors(path):
            try:
                moving = Callback(hooks={"": self._move})
                self._place.system.get_file((self._place / name).path, str(coming), callback=moving)
                _require_hash(coming, self._artifact.manifest.files[name])
                coming.replace(path)
            finally:
                coming.unlink(missing_ok=True)

    def _move(self, *_: object, **__: object) -> None:
        self._moved_at = time.monotonic()


def _read_manifest(place: RemotePath, uri: str) -> bytes:
    try:
        return bytes(place.system.cat_file(place.path))
    except FileNotFoundError as error:
        raise ArtifactError(f"{uri} is not an artifact: it has no {MANIFEST}. Check the address.") from error


async def _with_retries(work: Callable[[], Result], what: str) -> Result:
    """Retry work over a network a few times, unless it raises an error of ours."""
    for attempt, pause_s in enumerate(backoff(), 1):
        try:
            return work()
        except LingraftError:
            raise
        except Exception as error:  # each storage's client has exceptions of its own, with no common root
            if attempt == FETCH_ATTEMPTS:
                raise ArtifactError(
                    f"{what} could not be fetched in {attempt} attempts: {error!r}. "
                    "Check the address, the network and your rights, and start again."
                ) from error
        await asyncio.sleep(pause_s)
    raise AssertionError("backoff() does not end")


def _require_hash(path: Path, expected: str) -> None:
    actual = sha256_of(path)
    if actual != expected:
        # Not an error of ours yet: the transfer may have done it.
        raise OSError(f"its SHA-256 is {actual[:12]}, the manifest says {expected[:12]}")


def _stalled(uri: str, stall_s: float) -> ArtifactError:
    return ArtifactError(f"nothing of {uri} arrived for {stall_s:.0f} s. Check the network, and start again.")


def _modified_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process gave it up meanwhile
        return 0.0


def _remove_cached(path: Path) -> bool:
    with try_file_lock(path) as ours:
        if ours:
            path.unlink(missing_ok=True)
        return ours


def run_in_background(work: Coroutine[Any, Any, Result]) -> Future[Result]:
    """Start work in the background thread."""
    return asyncio.run_coroutine_threadsafe(work, _loop(os.getpid()))


@functools.cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Event loop of this process, since a fork has no threads; its thread is a daemon, not to block the exit."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="shards", daemon=True).start()
    return loop

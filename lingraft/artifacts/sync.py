"""A local copy of a folder in object storage: artifacts are downloaded first, and uploaded as they are made.

An artifact is uploaded file by file, its manifest last, so that it exists only when it is complete. An artifact that is
removed here, such as an old checkpoint, is removed there too.
"""

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import atomic_folder, cache_folder, make_folder
from lingraft.artifacts.manifest import MANIFEST, read_manifest
from lingraft.artifacts.remote import uri_of
from lingraft.artifacts.storage import RemotePath
from lingraft.console import say
from lingraft.errors import ArtifactError

RESULTS_VARIABLE = "LINGRAFT_RESULTS"
"""Environment variable: folder or URI of shared results and checkpoints."""
_EVERY_S = 5.0
"""Seconds between two checks for new artifacts."""


@contextlib.contextmanager
def synced_folder(uri: str) -> Iterator[Path]:
    """Yield a folder on this machine with all artifacts under a URI, which is kept in sync until the end.

    Raises:
        ArtifactError: the storage cannot be reached, or does not take what was made.
        MissingExtraError: it needs a client that is not installed.
    """
    make_folder(cache_folder("results"))
    with tempfile.TemporaryDirectory(dir=cache_folder("results")) as folder:
        sync = _FolderSync(RemotePath.of(uri), Path(folder))
        ended = threading.Event()
        with sync.explain_errors():
            sync.download()
        uploader = threading.Thread(target=sync.upload_until, args=(ended,), name="sync", daemon=True)
        uploader.start()
        try:
            yield Path(folder)
        finally:
            ended.set()
            uploader.join()
            with sync.explain_errors():
                sync.upload()


class _FolderSync:
    def __init__(self, place: RemotePath, folder: Path) -> None:
        self._place = place
        self._folder = folder
        self._storage = place.system
        self._root = place.path.rstrip("/")
        self._remote: set[str] = set()
        """Paths of the artifacts in the storage."""

    @contextlib.contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn errors of the storage into one that names it.

        Raises:
            ArtifactError: it cannot be read or written.
        """
        failures: tuple[type[Exception], ...] = (OSError, *self._place.failures)
        try:
            yield
        except failures as error:
            raise ArtifactError(
                f"{self._place} cannot be read or written: {error}. See that it is there, and that this process may "
                "write to it."
            ) from error

    def download(self) -> None:
        """Download all artifacts; a damaged one is left, and replaced when it has been made again."""
        for name in {*self._remote_artifacts()}:
            with atomic_folder(self._folder / name) as coming:
                self._storage.get(f"{self._root}/{name}/", f"{coming}/", recursive=True)
            try:
                Artifact.load(self._folder / name, read_manifest(self._folder / name).kind)
                self._remote.add(name)
            except ArtifactError as error:
                say(f"what lies in {self._place / name} is of no use: {error}")
                shutil.rmtree(self._folder / name)

    def upload_until(self, ended: threading.Event) -> None:
        while not ended.wait(_EVERY_S):
            try:
                with self.explain_errors():
                    self.upload()
            except ArtifactError as error:
                say(f"new artifacts will be uploaded again: {error}")

    def upload(self) -> None:
        """Upload new artifacts, then remove deleted ones, so that at least one checkpoint exists at every moment."""
        here = {*self._local_artifacts()}
        for name in sorted(here - self._remote):
            with contextlib.suppress(FileNotFoundError):  # an old checkpoint that went meanwhile
                self._upload(name)
                self._remote.add(name)
        for name in sorted(self._remote - here):
            self._storage.rm(f"{self._root}/{name}", recursive=True)
            self._remote.discard(name)

    def _upload(self, name: str) -> None:
        folder = self._folder / name
        inner = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
        for path in [*inner, folder / MANIFEST]:
            there = f"{self._root}/{path.relative_to(self._folder).as_posix()}"
            self._storage.makedirs(str(PurePosixPath(there).parent), exist_ok=True)
            self._storage.put_file(str(path), there)

    def _local_artifacts(self) -> Iterator[str]:
        for manifest in self._folder.rglob(MANIFEST):
            name = manifest.parent.relative_to(self._folder)
            if not any(part.startswith(".") for part in name.parts):
                yield name.as_posix()

    def _remote_artifacts(self) -> Iterator[str]:
        self._storage.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            for path in self._storage.find(self._root):
                name = path.removeprefix(f"{self._root}/")
                if name.rpartition("/")[2] == MANIFEST:
                    yield name.removesuffix(f"/{MANIFEST}")


@contextlib.contextmanager
def shared_cache_dir(where: str, name: str) -> Iterator[Path]:
    """Yield a folder of shared results on this machine, kept in sync with object storage if the results are there.

    Args:
        where: folder or URI of all shared results.
    """
    if uri := uri_of(where):
        with synced_folder(f"{uri.rstrip('/')}/{name}") as folder:
            yield folder
    else:
        yield Path(where) / name

"""A folder here of what lies in object storage: artifacts are brought when it is opened, and sent as they are made.

An artifact is sent file by file, its manifest last, so that it is there only when it is whole. One that is removed
here, as old checkpoints are, is removed there too.
"""

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from lingraft.artifacts.artifact import MANIFEST, Artifact, read_manifest
from lingraft.artifacts.files import atomic_folder, cache_folder, make_folder
from lingraft.artifacts.remote import uri_of
from lingraft.artifacts.storage import RemotePath
from lingraft.console import say
from lingraft.errors import ArtifactError

RESULTS_VARIABLE = "LINGRAFT_RESULTS"
"""Environment variable: the folder or URI."""
_EVERY_S = 5.0
"""Between two looks at what is new here."""


@contextlib.contextmanager
def synced_folder(uri: str, every_s: float = _EVERY_S) -> Iterator[Path]:
    """A folder on this machine with all artifacts under a URI, which goes with what is made in it until the end.

    Args:
        uri: of the folder there.
        every_s: seconds between two looks at what is new here.

    Raises:
        ArtifactError: the storage cannot be reached, or does not take what was made.
        MissingExtraError: it needs a client that is not installed.
    """
    make_folder(cache_folder("results"))
    with tempfile.TemporaryDirectory(dir=cache_folder("results")) as folder:
        mirror, ended = _FolderSync(RemotePath.of(uri), Path(folder)), threading.Event()
        with mirror.reached():
            mirror.bring()
        sender = threading.Thread(target=mirror.send_often, args=(ended, every_s), name="mirror", daemon=True)
        sender.start()
        try:
            yield Path(folder)
        finally:
            ended.set()
            sender.join()
            with mirror.reached():
                mirror.send()


class _FolderSync:
    def __init__(self, place: RemotePath, folder: Path) -> None:
        self._place, self._folder = place, folder
        self._storage, self._root = place.system, place.path.rstrip("/")
        self._there: set[str] = set()
        """Artifacts in the storage, as paths within the folder."""

    @contextlib.contextmanager
    def reached(self) -> Iterator[None]:
        """Name the storage in what goes wrong with it.

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

    def bring(self) -> None:
        """Bring what is there; what is damaged is left, and sent again when it has been made again."""
        for name in {*self._artifacts_there()}:
            with atomic_folder(self._folder / name) as coming:
                self._storage.get(f"{self._root}/{name}/", f"{coming}/", recursive=True)
            try:
                Artifact.load(self._folder / name, read_manifest(self._folder / name).kind)
                self._there.add(name)
            except ArtifactError as error:
                say(f"what lies in {self._place / name} is of no use: {error}")
                shutil.rmtree(self._folder / name)

    def send_often(self, ended: threading.Event, every_s: float) -> None:
        """Send what is new until the end; what fails is tried again."""
        while not ended.wait(every_s):
            try:
                with self.reached():
                    self.send()
            except ArtifactError as error:
                say(f"what was made so far will be sent again: {error}")

    def send(self) -> None:
        """Send what is new, then remove what is gone: at every moment there is one checkpoint at least."""
        here = {*self._artifacts_here()}
        for name in sorted(here - self._there):
            with contextlib.suppress(FileNotFoundError):  # an old checkpoint that went meanwhile
                self._send(name)
                self._there.add(name)
        for name in sorted(self._there - here):
            self._storage.rm(f"{self._root}/{name}", recursive=True)
            self._there.discard(name)

    def _send(self, name: str) -> None:
        folder = self._folder / name
        inner = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
        for path in [*inner, folder / MANIFEST]:
            there = f"{self._root}/{path.relative_to(self._folder).as_posix()}"
            self._storage.makedirs(str(PurePosixPath(there).parent), exist_ok=True)
            self._storage.put_file(str(path), there)

    def _artifacts_here(self) -> Iterator[str]:
        for manifest in self._folder.rglob(MANIFEST):
            name = manifest.parent.relative_to(self._folder)
            if not any(part.startswith(".") for part in name.parts):
                yield name.as_posix()

    def _artifacts_there(self) -> Iterator[str]:
        self._storage.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            for path in self._storage.find(self._root):
                name = path.removeprefix(f"{self._root}/")
                if name.rpartition("/")[2] == MANIFEST:
                    yield name.removesuffix(f"/{MANIFEST}")


@contextlib.contextmanager
def shared_cache_dir(where: str, name: str) -> Iterator[Path]:
    """A folder on this machine; what stands in object storage is brought here, and what is made goes there.

    Args:
        where: what `LINGRAFT_RESULTS` says.
        name: of the folder there.
    """
    if uri := uri_of(where):
        with synced_folder(f"{uri.rstrip('/')}/{name}") as folder:
            yield folder
    else:
        yield Path(where) / name

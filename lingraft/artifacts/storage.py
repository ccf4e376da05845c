"""Places of text: files and folders here, or in a store that fsspec reaches, such as s3://bucket/corpus."""

import contextlib
import glob
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from lingraft.errors import ArtifactError, LingraftError, MissingExtraError, TextError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_EXTRAS = {
    "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure",
    "http": "data", "https": "data",
}  # fmt: skip
"""Extras of lingraft with the package that reads each protocol."""
_FAILURES = {
    "s3": ("botocore.exceptions.BotoCoreError", "botocore.exceptions.ClientError"),
    "gcs": ("gcsfs.retry.HttpError", "google.auth.exceptions.GoogleAuthError", "aiohttp.ClientError"),
    "azure": ("azure.core.exceptions.AzureError",),
    "data": ("aiohttp.ClientError",),
}
"""Errors of these packages beside OSError."""


@dataclass(frozen=True)
class RemotePath:
    """A file or folder in a store: the few of pathlib's questions that reading text asks."""

    uri: str
    system: "AbstractFileSystem"
    path: str
    """Path within the store."""

    @classmethod
    def of(cls, uri: str, refusal: type[LingraftError] = TextError) -> "RemotePath":
        """Open the store of a URI, or of a path on this machine."""
        import fsspec  # not needed by the processes that share a text on this machine

        protocol = uri.partition("://")[0].rpartition("::")[2]
        try:
            system, path = fsspec.core.url_to_fs(uri)
        except ImportError as error:
            if protocol not in _EXTRAS:
                raise
            raise MissingExtraError(f"what reads {protocol}://", _EXTRAS[protocol]) from error
        except ValueError as error:
            reason = str(error).rstrip(".")
            raise refusal(f"{uri} cannot be opened: {reason}. Check its protocol and settings.") from error
        return cls(uri, system, path)

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, inner: str | PurePosixPath) -> "RemotePath":
        return RemotePath(f"{self.uri.rstrip('/')}/{inner}", self.system, f"{self.path.rstrip('/')}/{inner}")

    @property
    def suffix(self) -> str:
        """End of the name, with the dot."""
        return PurePosixPath(self.path).suffix

    @property
    def stem(self) -> str:
        """Name without the suffix."""
        return PurePosixPath(self.path).stem

    def exists(self) -> bool:
        """Whether there is a file or folder."""
        with explain_read_errors(self):
            return bool(self.system.exists(self.path))

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        with explain_read_errors(self):
            return bool(self.system.isdir(self.path))

    def open(self, mode: str = "rb") -> BufferedReader:
        """Open it to be read from its start, a few megabytes at a time."""
        return BufferedReader(self.system.open(self.path, mode))

    def require_writable(self) -> None:
        """Write an object in the folder and remove it, as nothing else shows the rights of a bucket."""
        failures: tuple[type[Exception], ...] = (OSError, *self.failures)
        probe = f"{self.path.rstrip('/')}/.lingraft-write-check"
        try:
            self.system.pipe_file(probe, b"")
            self.system.rm_file(probe)
        except failures as error:
            raise ArtifactError(
                f"cannot write {self}: {error}. Check the URI, and the credentials in the environment."
            ) from error

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """Errors of the store beside OSError."""
        protocols = self.system.protocol if isinstance(self.system.protocol, tuple) else (self.system.protocol,)
        extras = {_EXTRAS[protocol] for protocol in protocols if protocol in _EXTRAS}
        names = [name.rpartition(".") for extra in sorted(extras) for name in _FAILURES[extra]]
        return tuple(getattr(importlib.import_module(module), name) for module, _, name in names)


TextPath = Path | RemotePath


def parse_path(name: str) -> TextPath:
    """The place of a path, or of a URI."""
    return RemotePath.of(name) if "://" in name else Path(name)


def expand_paths(name: str) -> list[TextPath]:
    """The place of a path or URI; of a pattern with *, ** or ?, all that it fits, sorted, hidden ones left out."""
    place = parse_path(name)
    if not glob.has_magic(name) or place.exists():
        return [place]
    pattern = RemotePath.of(name)
    system = pattern.system
    with explain_read_errors(place):
        paths = [path for path in sorted(system.glob(pattern.path)) if not PurePosixPath(path).name.startswith(".")]
    found: list[TextPath] = [
        RemotePath(system.unstrip_protocol(path), system, path) if isinstance(place, RemotePath) else Path(path)
        for path in paths
    ]
    if not found:
        raise TextError(f"the pattern {name} fits no file or folder. Check it, and that the text is there.")
    return found


def list_names(folder: TextPath) -> list[str]:
    """Names of what lies directly in a folder, sorted."""
    with explain_read_errors(folder):
        paths = folder.system.ls(folder.path, detail=False) if isinstance(folder, RemotePath) else folder.iterdir()
        return sorted(PurePosixPath(path).name for path in paths)


def list_files(folder: TextPath) -> list[PurePosixPath]:
    """Paths of all files in a folder, relative to it and sorted; none whose name or folder starts with a dot."""
    with explain_read_errors(folder):
        if isinstance(folder, RemotePath):
            root = folder.path.rstrip("/") + "/"
            paths = [PurePosixPath(path.removeprefix(root)) for path in folder.system.find(folder.path)]
        else:
            paths = [PurePosixPath(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    return [path for path in sorted(paths) if not any(part.startswith(".") for part in path.parts)]


@contextlib.contextmanager
def explain_read_errors(place: TextPath) -> Iterator[None]:
    """Turn a refusal to let a place be read into an error that names it."""
    failures = place.failures if isinstance(place, RemotePath) else ()
    try:
        yield
    except OSError as error:
        raise TextError(f"{place} cannot be read: {error.strerror or error}. Check the path and its rights.") from error
    except failures as error:
        raise TextError(f"{place} cannot be read: {error}. Check the URI, the credentials and the network.") from error

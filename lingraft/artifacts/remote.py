"""Folders in object storage: downloaded when a stage begins, uploaded while it runs and when it ends."""

import contextlib
import hashlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import atomic_folder, cache_folder, write_bytes
from lingraft.artifacts.locks import folder_lock
from lingraft.artifacts.manifest import MANIFEST, Kind, read_manifest
from lingraft.artifacts.storage import RemotePath
from lingraft.errors import ArtifactError

_UPLOAD_EVERY_S = 60.0
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
    """Open the artifact at a URI that fsspec understands; it is downloaded once, into the cache of this machine."""
    place = RemotePath.of(uri, ArtifactError)
    with _explain_errors(place):
        try:
            manifest = place.system.cat_file((place / MANIFEST).path)
        except FileNotFoundError as error:
            raise ArtifactError(f"{uri} is not an artifact: it has no {MANIFEST}. Check the address.") from error
    folder = cache_folder("blocks") / hashlib.sha256(uri.encode() + b"\0" + manifest).hexdigest()[:32]
    with folder_lock(folder, wait=True):
        if not folder.exists():
            with atomic_folder(folder) as coming:
                write_bytes(coming / MANIFEST, manifest)
                _download(place, read_manifest(coming).file_names, coming)
                Artifact.load(coming, kind)
    return Artifact.open(folder, kind)


@contextlib.contextmanager
def synced_folder(place: RemotePath, folder: Path) -> Iterator[None]:
    """Download a folder of object storage; upload what has changed each minute and at the end.

    What was removed here is removed there. Manifests are uploaded last, so that an artifact exists there only when it
    is complete. A process that is killed loses what the last minute changed, and no older checkpoint.
    """
    root = place.path.rstrip("/")
    with _explain_errors(place):
        place.system.invalidate_cache()
        found = place.system.find(root) if place.system.exists(root) else []
    _download(place, [path.removeprefix(f"{root}/") for path in found], folder)
    known, ended = _changed_at(folder), threading.Event()

    def upload() -> None:
        now = _changed_at(folder)
        with _explain_errors(place):
            for name in sorted(now, key=lambda name: PurePosixPath(name).name == MANIFEST):
                if now[name] != known.get(name):
                    place.system.makedirs(str(PurePosixPath(f"{root}/{name}").parent), exist_ok=True)
                    place.system.put_file(str(folder / name), f"{root}/{name}")
                    known[name] = now[name]
            for name in known.keys() - now.keys():
                place.system.rm_file(f"{root}/{name}")
                del known[name]

    def upload_often() -> None:
        while not ended.wait(_UPLOAD_EVERY_S):
            with contextlib.suppress(ArtifactError, OSError):  # what vanishes meanwhile; the end uploads all
                upload()

    uploader = threading.Thread(target=upload_often, name="upload", daemon=True)
    uploader.start()
    try:
        yield
    finally:
        ended.set()
        uploader.join()
        upload()


def _download(place: RemotePath, names: list[str], folder: Path) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with _explain_errors(place / name):
            place.system.get_file((place / name).path, str(folder / name))


def _changed_at(folder: Path) -> dict[str, int]:
    """Return when files were last changed, by their names; without temporary files and locks."""
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.stat().st_mtime_ns for name, path in names.items() if not re.search(r"(^|/)\.", name)}


@contextlib.contextmanager
def _explain_errors(place: RemotePath) -> Iterator[None]:
    failures: tuple[type[Exception], ...] = (OSError, *place.failures)
    try:
        yield
    except failures as error:
        raise ArtifactError(
            f"{place} cannot be read or written: {error}. Check the URI, the network, and your rights there."
        ) from error

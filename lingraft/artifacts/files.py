"""Atomic writes of files and folders: a temporary name, fsync, then rename."""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from lingraft.artifacts.storage import TextPath
from lingraft.errors import ArtifactError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_OURS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO}
_IN_THE_WAY = {errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENOTEMPTY, errno.ENAMETOOLONG}
_REFUSALS = _FULL | _NOT_OURS | _IN_THE_WAY
_NO_PLACE = _REFUSALS | {errno.ENOENT}
"""Error codes of writes that read nothing: whatever is absent can only be the place to write to, such as in /proc."""


def sha256_of(path: TextPath) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write into an error with the path and a remedy.

    The body may read inputs too: one that is absent stays a FileNotFoundError.

    Raises:
        ArtifactError: the disk is full, read-only, or not ours to write to, or something is in the way.
    """
    with _explain_errors(path, _REFUSALS):
        yield


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, unless they exist.

    Raises:
        ArtifactError: there cannot be one.
    """
    with _explain_errors(folder, _NO_PLACE):
        folder.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def _explain_errors(path: Path, refusals: Set[int]) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = _errno_of(error)
        if number not in refusals:
            raise
        full = number in _FULL
        remedy = "Free space there, or choose" if full else "Choose"
        raise ArtifactError(f"cannot write {path}: {error}. {remedy} another output that you may write to.") from error


def _errno_of(error: OSError | SafetensorError) -> int | None:
    """Error number of the operating system; safetensors and shutil.copytree have it in their text alone."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = re.search(r"\(os error (\d+)\)|\[Errno (\d+)\]", str(error))
    return int(found[1] or found[2]) if found else None


@contextlib.contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary sibling of `folder`; on success make it durable and rename it into place.

    Nothing appears under `folder` if the body fails. An empty `folder` that exists already is replaced.
    """
    temporary = _temporary_sibling(folder)
    with explain_write_errors(folder):
        try:
            yield temporary
            for path in sorted(temporary.rglob("*")):
                # Some writers leave files to their owner alone, but whoever serves an artifact may be another user.
                path.chmod(0o755 if path.is_dir() else 0o644)
                _fsync(path)
            _fsync(temporary)
            temporary.chmod(0o755)
            temporary.replace(folder)
            _fsync(folder.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def cache_folder(name: str) -> Path:
    """Return a folder for fetched files, in `LINGRAFT_CACHE` or the user's cache folder."""
    if chosen := os.environ.get("LINGRAFT_CACHE"):
        return Path(chosen) / name
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "lingraft" / name


def require_new(folder: Path) -> None:
    """Refuse an output before long work instead of after it; nothing is made."""
    _refuse_content(folder)
    _try_writing(folder, folder.absolute().parents)


def require_writable(folder: Path) -> None:
    """Refuse a folder of results before long work; it is not made, and may hold something."""
    _try_writing(folder, (folder, *folder.absolute().parents))


def _try_writing(folder: Path, places: Iterable[Path]) -> None:
    """Write a file without a name, which no process that clears up can take away, in the first place that exists."""
    with _explain_errors(folder, _NO_PLACE):
        there = next(path for path in places if path.exists())
        with tempfile.TemporaryFile(dir=there) as stream:
            stream.write(b"\0")


def _refuse_content(folder: Path) -> None:
    with _explain_errors(folder, _NO_PLACE):
        if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
            raise ArtifactError(f"{folder} exists already. Choose another output, or remove it first.")


def _temporary_sibling(folder: Path) -> Path:
    _refuse_content(folder)
    with _explain_errors(folder, _NO_PLACE):
        folder.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; an existing file keeps its permissions."""
    with _explain_errors(path, _NO_PLACE):
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode) if path.is_file() else 0o644
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as stream:
            temporary = Path(stream.name)
            try:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
                temporary.chmod(mode)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, keys sorted, so that equal content gives equal bytes."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")

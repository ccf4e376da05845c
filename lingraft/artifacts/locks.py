"""Locks by `filelock`, so that one process at a time writes a folder; the kernel releases those of a killed process."""

import contextlib
import errno
import glob
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from lingraft.artifacts.files import explain_write_errors, make_folder
from lingraft.console import say
from lingraft.errors import ArtifactError, InUseError

_CANNOT_LOCK = {errno.ENOLCK, errno.ENOTSUP, errno.EBADF}
"""Error codes of file systems without locks, such as some that stand for object storage."""
_RANDOM_LETTERS = 8
"""Length of tempfile's random suffix in the name of a folder that is being written."""
_POLL_S = 0.5


@contextlib.contextmanager
def folder_lock(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a folder, which need not exist; an empty folder is removed at the end.

    Nobody can write where no lock file can be made, so that nothing is locked there.

    Args:
        wait: whether to wait for the process that holds the lock.

    Raises:
        InUseError: another process holds the lock, and `wait` is false.
    """
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        make_folder(folder.parent)
        with explain_write_errors(folder):
            _acquire(lock, folder, wait)
    except InUseError:
        raise
    except ArtifactError as error:
        say(f"{folder} is not locked, and nothing can be kept there: {error}")
    except OSError as error:
        if error.errno not in _CANNOT_LOCK:
            raise
        say(f"{folder} cannot be locked: {error}. See to it that no other process writes it.")
    try:
        yield
    finally:
        if lock.is_locked:
            with contextlib.suppress(OSError):  # something is in it, or it does not exist
                folder.rmdir()
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()


def _acquire(lock: FileLock, folder: Path, wait: bool) -> None:
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        if not wait:
            raise InUseError(
                f"{folder} is in use by another process, which makes the same at this moment. Wait until it "
                "has ended, or choose another output."
            ) from error
        say(f"{folder} is being made by another process, which is waited for")
        lock.acquire(poll_interval=_POLL_S)


def remove_partial_writes(folder: Path) -> None:
    """Remove what a process that was killed while it wrote an artifact has left beside it; call it under the lock."""
    for torn in folder.parent.glob(glob.escape(f".{folder.name}-") + "?" * _RANDOM_LETTERS):
        shutil.rmtree(torn, ignore_errors=True)

"""One at a time: two processes that train into the same place would remove what the other has written."""

import contextlib
import errno
import fcntl
import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from lingraft.artifacts.files import explain_write_errors, make_folder
from lingraft.console import say
from lingraft.errors import ArtifactError, InUseError

_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EBADF, errno.ENOSYS}
"""What file systems answer that cannot lock, such as some that stand for object storage."""

_RANDOM_LETTERS = 8
"""How many tempfile puts behind the prefix of a folder being written."""


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made if need be; a process that ends holds nothing, however it ends.

    Where there can be no folder, nobody can write into it, and there is nothing to hold.

    Raises:
        ArtifactError: another process holds it.
    """
    descriptor = _open_and_lock(folder)
    try:
        yield
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):  # something is in it, or it has been removed
                folder.rmdir()
            os.close(descriptor)


def remove_partial_writes(folder: Path) -> None:
    """Remove what a process that was killed while it wrote an artifact has left beside it; nobody else may write it."""
    for torn in folder.parent.glob(glob.escape(f".{folder.name}-") + "?" * _RANDOM_LETTERS):
        shutil.rmtree(torn, ignore_errors=True)


def _open_and_lock(folder: Path) -> int | None:
    while True:
        try:
            make_folder(folder)
            with explain_write_errors(folder):
                descriptor = os.open(folder, os.O_RDONLY)
        except ArtifactError as error:
            say(f"no checkpoints can be kept: {error} Training goes on without.")
            return None
        except FileNotFoundError:  # whoever held it has removed it meanwhile
            continue
        _lock(descriptor, folder)
        if _is_same_folder(descriptor, folder):
            return descriptor
        os.close(descriptor)


def _is_same_folder(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            say(f"{folder} cannot be locked: {error}. See to it that no other process trains into it.")
            return
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise
        raise InUseError(
            f"{folder} is in use by another process, which trains the same at this moment. Wait until it has ended, "
            "or choose another output."
        ) from error

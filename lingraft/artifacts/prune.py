"""Removal of shared results that no run has asked for in a while.

Every use of a shared result, by the run that makes it or by one that takes it, writes its provenance file again, and a
training writes checkpoints beside it. So the newest modification of a file in a result's folder tells its last use.
"""

import contextlib
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from lingraft.artifacts.cache import RESULT
from lingraft.artifacts.locks import try_file_lock
from lingraft.errors import ArtifactError

_RESULT_FOLDER = re.compile(r"[a-z-]+-[0-9a-f]{32}")
_LOCK = re.compile(r"\.(.+)\.lock")


def prune_results(results: Path, unused_s: float, *, dry_run: bool = False) -> Iterator[Path]:
    """Remove results that were last used longer ago than `unused_s` seconds, and yield their folders.

    A result that a process holds stays, and so does everything that is not named like a result.

    Raises:
        ArtifactError: `results` is no folder.
    """
    if not results.is_dir():
        raise ArtifactError(f"{results} is no folder. Name the folder of shared results, such as /data/results.")
    for folder in sorted(results.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # something in it was written or removed: it is in use
            if _RESULT_FOLDER.fullmatch(folder.name) and time.time() - _last_use(folder) > unused_s:
                with contextlib.ExitStack() as locks:
                    if not all(locks.enter_context(try_file_lock(path)) for path in _lockable(folder)):
                        continue
                    if not dry_run:
                        shutil.rmtree(folder)
                    yield folder


def _last_use(folder: Path) -> float:
    """Return the newest modification of a file, in seconds since 1970; locks do not count, which we touch ourselves."""
    files = (path for path in folder.rglob("*") if path.is_file() and not _LOCK.fullmatch(path.name))
    return max((path.stat().st_mtime for path in files), default=folder.stat().st_mtime)


def _lockable(folder: Path) -> list[Path]:
    """Return the folders that processes lock: the result, and parts of it that somebody holds or was killed with."""
    held = [(path, _LOCK.fullmatch(path.name)) for path in folder.rglob(".*.lock")]
    return [*dict.fromkeys([folder / RESULT, *(path.with_name(found[1]) for path, found in held if found)])]

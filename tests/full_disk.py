"""Disks that are full, without filling one and without root."""

import contextlib
import resource
import sys
from collections.abc import Iterator

LIMIT_BYTES = 4096


@contextlib.contextmanager
def full_disk(limit_bytes: int = LIMIT_BYTES) -> Iterator[None]:
    """Let the kernel refuse to write a file beyond a limit; Python sees an OSError, as from a full disk or a quota.

    Modules that are imported meanwhile leave no bytecode: Python would not notice that it was cut short, and no later
    run could import them.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    keeps_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = keeps_bytecode

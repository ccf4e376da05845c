"""Disks that are full, without filling one and without root."""

import contextlib
import resource
from collections.abc import Iterator

LIMIT_BYTES = 4096


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Let the kernel refuse to write a file beyond LIMIT_BYTES; Python sees an OSError, as from a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

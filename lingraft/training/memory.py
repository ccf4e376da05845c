"""Memory that a training on a CPU keeps."""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
"""Numbers of the parameters of glibc's mallopt."""
_TOP_PAD_BYTES = 2**28


def reuse_freed_memory() -> bool:
    """Keep freed memory in the process, so that training on a CPU does not fetch it from the system in every step.

    glibc gives tensors of 32 MiB and more back as soon as they are freed, and the system fills the next ones with zeros
    page by page: a third of the processor time of a training step. The process holds its peak until it ends.

    Returns:
        Whether the C library is one that can be told so.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = {_MMAP_MAX: 0, _TRIM_THRESHOLD: -1, _TOP_PAD: _TOP_PAD_BYTES}
    return all(mallopt(name, value) for name, value in settings.items())

"""The most memory that this process has held."""

import resource
from pathlib import Path

_STATUS = Path("/proc/self/status")


def resident_peak_bytes() -> int:
    """Resident memory at its highest.

    The kernel's own mark, where there is one: `ru_maxrss` outlives exec, so that a child's begins at what its parent
    held.
    """
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

"""Rank of this process among those that `torchrun` has started together; without it, it is the only one.

Nothing is imported for that, since the command line asks before it imports PyTorch.
"""

import math
import os
from pathlib import Path

PROCESSES_VARIABLE = "LINGRAFT_PROCESSES"
"""Variable that says on how many processes of this machine to train."""
ALL_PROCESSES = "all"
"""Value of LINGRAFT_PROCESSES for one process for each accelerator, or one where there is none."""
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores() -> int:
    """Return the number of cores that this process may use, by its CPU affinity and the container's quota."""
    bound = len(os.sched_getaffinity(0))
    if not _QUOTA.is_file():
        return bound
    quota, period = _QUOTA.read_text().split()
    return bound if quota == "max" else max(1, min(bound, math.ceil(int(quota) / int(period))))


def world_size() -> int:
    """Return the number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Return the number of this process, from 0."""
    return int(os.environ.get("RANK", "0")) if world_size() > 1 else 0


def is_rank_zero() -> bool:
    """Return whether this is the process that writes, tracks and shows progress."""
    return rank() == 0

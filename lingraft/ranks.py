"""Which of the processes this one is that `torchrun` has started together; without it, one process leads and is alone.

Nothing is imported for that: the command line asks before PyTorch is there.
"""

import os

WANTED = "LINGRAFT_PROCESSES"
"""Variable that says on how many processes of this machine to train."""


def count() -> int:
    """Processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Number of this process, from 0."""
    return int(os.environ.get("RANK", "0")) if count() > 1 else 0


def leads() -> bool:
    """Whether this is the process that writes, tracks and shows progress."""
    return rank() == 0

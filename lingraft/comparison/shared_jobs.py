"""Jobs that several processes share, which know of each other only by what lies in the folder of results."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from lingraft.artifacts.locks import folder_lock
from lingraft.console import say
from lingraft.errors import InUseError
from lingraft.jobs.job import Job

_LOCKS = ".held"
"""Has a folder for each job that some process is at."""
_POLL_S = 1.0


def claim_in_turn(planned: Iterable[Job], out: Path) -> Iterator[Job]:
    """Every job, held by this process until the next is asked for.

    The next is the first that no other process is at and that builds on nothing still to come. What another process
    has done comes too, so that each sees all results. One process alone gets them as they are planned.

    Args:
        planned: each after those that it builds on.
        out: folder of all results, the same for all processes.
    """
    waiting = [*planned]
    told = None
    while waiting:
        with ExitStack() as hold:
            job = next((one for one in _ready(waiting) if _try_lock(one.made, out, hold)), None)
            if job:
                yield job
                waiting.remove(job)
                continue
        if told != waiting[0]:
            told = waiting[0]
            say(f"waiting for another process: {told.title}")
        time.sleep(_POLL_S)


@contextmanager
def exclusive(made: Path, out: Path) -> Iterator[None]:
    """Have what lies at `made` to oneself, as soon as no other process has."""
    with ExitStack() as hold:
        while not _try_lock(made, out, hold):
            time.sleep(_POLL_S)
        yield


def _ready(waiting: Sequence[Job]) -> Iterator[Job]:
    to_come = {job.made for job in waiting}
    return (job for job in waiting if to_come.isdisjoint(job.inputs.values()))


def _try_lock(made: Path, out: Path, hold: ExitStack) -> bool:
    """Whether a job is this process's from now on, until `hold` ends."""
    with suppress(InUseError):
        hold.enter_context(folder_lock(out / _LOCKS / ".".join(made.relative_to(out).parts)))
        return True
    return False

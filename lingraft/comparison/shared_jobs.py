"""Jobs shared by several processes, which coordinate by nothing but locks in the results folder."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from lingraft.artifacts.locks import folder_lock
from lingraft.console import say
from lingraft.errors import InUseError
from lingraft.jobs.job import Job

_POLL_S = 1.0


def claim_in_turn(planned: Iterable[Job]) -> Iterator[Job]:
    """Yield every job, locked by this process until the next one is requested.

    The next job is the first that no other process is running and whose inputs are all done. Jobs that another process
    has done are yielded too, so that every process sees all results. A single process gets the jobs in the planned
    order.

    Args:
        planned: jobs, each after those that it depends on.
    """
    waiting = [*planned]
    told = None
    while waiting:
        with ExitStack() as hold:
            job = next((one for one in _ready(waiting) if _try_lock(one.made, hold)), None)
            if job:
                yield job
                waiting.remove(job)
                continue
        if told != waiting[0]:
            told = waiting[0]
            say(f"waiting for another process: {told.title}")
        time.sleep(_POLL_S)


def _ready(waiting: Sequence[Job]) -> Iterator[Job]:
    to_come = {job.made for job in waiting}
    return (job for job in waiting if to_come.isdisjoint(job.inputs.values()))


def _try_lock(made: Path, hold: ExitStack) -> bool:
    """Try to lock a job's output until `hold` ends; return whether it succeeded."""
    with suppress(InUseError):
        hold.enter_context(folder_lock(made))
        return True
    return False

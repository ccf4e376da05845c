"""Which accelerator trains what, one job at a time on each: what comes first, then the rest side by side."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lingraft.model.flops import CostError

_ROUNDING = 1e-9


class PlannedJob(NamedTuple):
    """A training run that takes one accelerator for so long."""

    name: str
    hours: float


@dataclass(frozen=True)
class Plan:
    """Jobs that come first, one after the other on one accelerator, and then a lane of jobs for each that gets one."""

    first: tuple[PlannedJob, ...]
    lanes: tuple[tuple[PlannedJob, ...], ...]
    """One for each accelerator that gets a job, the one that ran `first` in front, though it may have no other."""

    @property
    def first_hours(self) -> float:
        """Time before the lanes begin."""
        return _length(self.first)

    @property
    def makespan_hours(self) -> float:
        """Time until the last job ends."""
        return self.first_hours + max(map(_length, self.lanes))

    @property
    def rented_hours(self) -> float:
        """Accelerator-hours, idle ones included: one at first, then all that have a job, until the last job ends."""
        used = sum(1 for lane in self.lanes if lane)
        return self.first_hours + used * max(map(_length, self.lanes))

    @property
    def excess(self) -> float:
        """How much longer than the shortest plan this one is at most, as a share; 0: no plan is shorter."""
        jobs = [job.hours for lane in self.lanes for job in lane]
        if not jobs:
            return 0.0
        at_least = max(max(jobs), sum(jobs) / len(self.lanes), -(-len(jobs) // len(self.lanes)) * min(jobs))
        share = self.makespan_hours / (self.first_hours + at_least) - 1
        return share if share > _ROUNDING else 0.0


def plan_jobs(first: Sequence[PlannedJob], jobs: Sequence[PlannedJob], accelerators: int) -> Plan:
    """Give each job, the longest first, to the accelerator that is free soonest (Graham 1969).

    Jobs of equal length end as early as they can; others at most 4/3 - 1/(3 m) times as late as they could on m
    accelerators.

    Args:
        first: what must end before any job of `jobs` begins.
        jobs: what needs no other, in any order.
        accelerators: how many there are, m.

    Raises:
        CostError: there is no accelerator.
    """
    if accelerators < 1:
        raise CostError(f"a plan needs 1 or more accelerators, not {accelerators}. Give --gpus 1 or more.")
    lanes: list[list[PlannedJob]] = [[] for _ in range(max(1, min(accelerators, len(jobs))))]
    free = [(0.0, lane) for lane in range(len(lanes))]
    for job in sorted(jobs, key=lambda job: -job.hours):
        busy_hours, lane = heapq.heappop(free)
        lanes[lane].append(job)
        heapq.heappush(free, (busy_hours + job.hours, lane))
    return Plan(tuple(first), tuple(tuple(lane) for lane in lanes))


def _length(jobs: Sequence[PlannedJob]) -> float:
    return sum(job.hours for job in jobs)

"""Plans: every job once, what comes first first, and how far from the shortest."""

import itertools
import random

import pytest

from lingraft.model.flops import CostError
from lingraft.reports.cost.plan import Plan, PlannedJob, plan_jobs


def jobs(*hours: float) -> list[PlannedJob]:
    return [PlannedJob(f"job {number}", length) for number, length in enumerate(hours)]


def shortest(found: list[PlannedJob], accelerators: int) -> float:
    """By trying every way."""
    return min(
        max(sum(job.hours for job, lane in zip(found, lanes, strict=True) if lane == n) for n in range(accelerators))
        for lanes in itertools.product(range(accelerators), repeat=len(found))
    )


def lengths(found: Plan) -> list[list[float]]:
    return [[job.hours for job in lane] for lane in found.lanes]


@pytest.mark.parametrize(("count", "gpus", "rounds"), [(14, 8, 2), (16, 8, 2), (17, 8, 3), (3, 8, 1), (14, 1, 14)])
def test_equal_jobs_take_as_many_rounds_as_they_must(count: int, gpus: int, rounds: int) -> None:
    found = plan_jobs(jobs(5, 2), jobs(*[3.3] * count), gpus)
    assert found.first_hours == 7
    assert found.makespan_hours == pytest.approx(7 + 3.3 * rounds)
    assert found.excess == 0


def test_the_longest_go_first_to_whoever_is_free() -> None:
    found = plan_jobs([], jobs(2, 3, 4, 6), 2)
    assert lengths(found) == [[6, 2], [4, 3]]
    assert found.makespan_hours == 8
    assert found.excess == pytest.approx(8 / 7.5 - 1)


def test_what_comes_first_is_waited_for() -> None:
    first = jobs(10)
    found = plan_jobs(first, jobs(1, 1, 1), 2)
    assert found.first == tuple(first)
    assert found.makespan_hours == 12


def test_an_accelerator_without_a_job_is_not_rented() -> None:
    assert plan_jobs(jobs(10), jobs(1, 1, 1), 2).rented_hours == 10 + 2 * 2
    assert plan_jobs(jobs(10), jobs(1, 1, 1), 5).rented_hours == 10 + 3 * 1
    assert plan_jobs(jobs(10), [], 5).rented_hours == 10


def test_accelerators_beyond_the_jobs_change_nothing_however_many() -> None:
    given = jobs(3, 1, 2)
    assert plan_jobs(jobs(10), given, 10**12) == plan_jobs(jobs(10), given, 3)
    assert plan_jobs(jobs(10), [], 10**12) == plan_jobs(jobs(10), [], 1)


def test_every_job_is_done_once_and_no_plan_is_worse_than_it_says() -> None:
    draw = random.Random(3)
    for gpus in (2, 3):
        for _ in range(20):
            given = jobs(*(draw.uniform(1, 9) for _ in range(draw.randint(1, 6))))
            found, best = plan_jobs([], given, gpus), shortest(given, gpus)
            assert sorted(job for lane in found.lanes for job in lane) == sorted(given)
            assert best * (1 - 1e-9) <= found.makespan_hours <= best * (4 / 3 - 1 / (3 * gpus)) * (1 + 1e-9)
            assert found.makespan_hours <= best * (1 + found.excess) * (1 + 1e-6)


@pytest.mark.parametrize("gpus", [0, -2])
def test_no_accelerator_no_plan(gpus: int) -> None:
    with pytest.raises(CostError, match=f"not {gpus}"):
        plan_jobs([], jobs(1), gpus)

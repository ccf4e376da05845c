"""The formulas of near-maximal performance, fed with the paper's own tables."""

import math
from statistics import mean

import pytest

from lingraft.comparison.efficiency import LearningCurve, informative, near_maximal, speed_up
from lingraft.config.systems import System
from tests.comparison.published import AVERAGE_DAYS, AVERAGE_SCORES, DAYS, SCORES, Printed

MAIN = ("xnli", "mlqa", "paws-x")
JOINT, POST = System.MINIJOINT, System.MINIPOST


@pytest.mark.parametrize(
    ("points", "target", "reached"),
    [
        ([(5_000, 0.48), (10_000, 0.52)], 0.5, 7_500),  # the paper's example
        ([(0, 0.2), (10, 0.6), (20, 0.3), (30, 0.9)], 0.5, 7.5),  # though the score falls again
        ([(0, 0.2), (10, 0.6), (20, 0.8)], 0.6, 10),
        ([(0, 0.4), (1_000, 0.8)], 0.4, 0),
        ([(5_000, 0.7), (10_000, 0.8)], 0.5, 5_000),
        ([(0, 0.1), (10, 0.49)], 0.5, math.inf),
    ],
)
def test_a_target_is_reached_between_the_checkpoints_before_and_after(
    points: list[tuple[float, float]], target: float, reached: float
) -> None:
    assert LearningCurve(*zip(*points, strict=True)).reach(target) == pytest.approx(reached)


def test_a_score_between_checkpoints_is_interpolated_and_beyond_them_unknown() -> None:
    curve = LearningCurve((10.0, 20.0), (0.2, 0.4))
    assert [curve.at(cost) for cost in (5, 10, 15, 20, 25)] == [None, 0.2, pytest.approx(0.3), 0.4, None]


def test_a_reference_five_points_over_the_baseline_is_informative_and_less_is_not() -> None:
    assert near_maximal(0.8) == pytest.approx(0.76)
    assert informative(1 / 3 + 0.05, 1 / 3)
    assert informative(0.383, 0.333)
    assert not informative(0.3829, 0.333)


def test_a_speed_up_is_a_ratio_or_the_reason_why_there_is_none() -> None:
    inf = math.inf
    found = [speed_up(*pair) for pair in ((1.0, 4.0), (10.0, 10.0), (inf, 2.0), (2.0, inf), (0.0, 3.0), (5.0, 0.0))]
    assert found[:2] == [4.0, 1.0]
    assert found[2:4] == ["never reached", "never reached by BL_BASE"]
    assert found[4:] == ["no update needed", "BL_BASE alone needs no update"]


@pytest.mark.parametrize(("tables", "averages"), [(SCORES, AVERAGE_SCORES), (DAYS, AVERAGE_DAYS)])
def test_every_average_that_the_paper_prints_follows_from_its_cells(
    tables: Printed, averages: dict[str, dict[System, float]]
) -> None:
    for name, rows in tables.items():
        assert averages[name].keys() == rows.keys()
        for system, printed in averages[name].items():
            cells = [cell for cell in rows[system].values() if math.isfinite(cell)]
            assert mean(cells) == pytest.approx(printed, abs=0.051), (name, system)


@pytest.mark.parametrize(
    ("system", "saved", "by_task", "mean_of_tasks"),
    [(JOINT, 2.3, (2.08, 1.91, 3.25), 2.4), (POST, 1.6, (1.43, 1.56, 2.02), 1.7)],
)
def test_the_papers_days_give_what_it_says_is_saved(
    system: System, saved: float, by_task: tuple[float, ...], mean_of_tasks: float
) -> None:
    ratios = {
        task: [speed_up(days, rows[System.BL_BASE][language]) for language, days in rows[system].items()]
        for task, rows in DAYS.items()
    }
    numbers = {task: [one for one in found if not isinstance(one, str)] for task, found in ratios.items()}
    assert [round(mean(numbers[task]), 2) for task in MAIN] == pytest.approx(by_task)
    for tasks in (MAIN, tuple(DAYS)):
        assert round(mean(mean(numbers[task]) for task in tasks), 1) == mean_of_tasks
    assert round(mean(one for found in numbers.values() for one in found), 1) == saved

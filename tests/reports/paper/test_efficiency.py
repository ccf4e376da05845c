import math
from statistics import mean

import pytest

from lingraft.config.systems import System
from lingraft.reports.paper.cost_tables import published_ratios
from lingraft.reports.paper.efficiency import (
    NEVER,
    CurveError,
    LearningCurve,
    Ratios,
    Reached,
    informative,
    near_maximal,
    over_tasks,
    retained,
    speed_up,
)
from lingraft.reports.paper.published import DAYS, SCORES, PublishedTable
from tests.reports.paper.printed import AVERAGE_DAYS, AVERAGE_SCORES

MAIN = ("xnli", "mlqa", "paws-x")
JOINT, POST = System.MINIJOINT, System.MINIPOST


def curve(*points: tuple[float, float]) -> LearningCurve:
    return LearningCurve.of("XNLI de", points)


@pytest.mark.parametrize(
    ("points", "target", "reached"),
    [
        ([(5_000, 0.48), (10_000, 0.52)], 0.5, (7_500, 5_000, 10_000)),  # the paper's example
        ([(0, 0.2), (10, 0.6), (20, 0.3), (30, 0.9)], 0.5, (7.5, 0, 10)),  # though the score falls again
        ([(0, 0.2), (10, 0.6), (20, 0.8)], 0.6, (10, 0, 10)),
        ([(0, 0.4), (1_000, 0.8)], 0.5, (250, 0, 1_000)),
        ([(0, 0.4), (1_000, 0.8)], 0.4, (0, 0, 0)),
        ([(5_000, 0.7), (10_000, 0.8)], 0.5, (5_000, 0, 5_000)),
        ([(0, 0.1), (10, 0.49)], 0.5, NEVER),
    ],
)
def test_a_target_is_reached_between_the_checkpoints_before_and_after(
    points: list[tuple[float, float]], target: float, reached: Reached
) -> None:
    assert curve(*points).reach(target) == pytest.approx(reached)


def test_the_target_is_a_share_of_the_reference_or_of_what_it_has_over_a_baseline() -> None:
    assert near_maximal(0.8) == pytest.approx(0.76)
    assert near_maximal(0.8, baseline=0.5) == pytest.approx(0.785)


def test_a_reference_five_points_over_the_baseline_is_informative_and_less_is_not() -> None:
    assert informative(1 / 3 + 0.05, 1 / 3)
    assert informative(0.383, 0.333)
    assert not informative(0.3829, 0.333)
    assert not informative(0.3, 0.333)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], r"'XNLI de' has no checkpoint. Evaluate its run"),
        ([(10, 0.1), (5, 0.2)], r"'XNLI de' is not sorted: 5 comes after 10. Sort its checkpoints"),
        ([(5, 0.1), (5, 0.2)], r"'XNLI de' has two checkpoints at 5. Keep one"),
        ([(0, 0.1), (5, math.nan)], r"'XNLI de' has the score nan at 5. Evaluate that checkpoint again"),
        ([(math.nan, 0.1)], r"'XNLI de' has a checkpoint at nan. Give costs that are finite"),
        ([(-1, 0.1)], r"'XNLI de' has a checkpoint at -1"),
    ],
)
def test_a_curve_that_cannot_be_read_is_refused_with_the_way_to_mend_it(
    points: list[tuple[float, float]], message: str
) -> None:
    with pytest.raises(CurveError, match=message):
        curve(*points)


def test_speed_up_is_the_mean_of_ratios_and_languages_without_one_have_a_reason() -> None:
    found = Ratios.of(
        speed_up,
        {
            "de": (1.0, 4.0),
            "es": (10.0, 10.0),
            "tr": (math.inf, 2.0),
            "ar": (2.0, math.inf),
            "ru": (0.0, 3.0),
            "el": (5.0, 0.0),
            "sw": "not informative",
        },
    )
    assert found.by_language == {"de": 4.0, "es": 1.0}
    assert found.mean == 2.5
    assert found.count == 7
    assert found.left_out == {
        "tr": "never reached",
        "ar": "never reached by the reference",
        "ru": "reached before any update",
        "el": "reached by the reference before any update",
        "sw": "not informative",
    }


def test_what_is_retained_is_a_share_of_the_reference_s_score() -> None:
    found = Ratios.of(retained, {"de": (0.6, 0.8), "tr": (0.1, 0.0)})
    assert found.by_language == {"de": pytest.approx(0.75)}
    assert found.left_out == {"tr": "the reference scores 0"}


def test_a_mean_over_no_language_is_none_rather_than_a_number() -> None:
    nothing = Ratios.of(speed_up, {"tr": (math.inf, 2.0)})
    assert nothing.mean is None
    assert over_tasks([nothing]) is None
    assert over_tasks([nothing, Ratios.of(speed_up, {"de": (1.0, 3.0)})]) == 3.0


@pytest.mark.parametrize(("tables", "averages"), [(SCORES, AVERAGE_SCORES), (DAYS, AVERAGE_DAYS)])
def test_every_average_that_the_paper_prints_follows_from_its_cells(
    tables: dict[str, PublishedTable], averages: dict[str, dict[System, float]]
) -> None:
    for name, task in tables.items():
        assert averages[name].keys() == task.rows.keys()
        for system, printed in averages[name].items():
            cells = [cell for cell in task.rows[system] if math.isfinite(cell)]
            assert mean(cells) == pytest.approx(printed, abs=0.051), (name, system)


@pytest.mark.parametrize(
    ("system", "kept", "saved", "by_task", "mean_of_tasks"),
    [(JOINT, 98.7, 2.3, (2.08, 1.91, 3.25), 2.4), (POST, 99.3, 1.6, (1.43, 1.56, 2.02), 1.7)],
)
def test_the_paper_s_cells_give_what_it_says_is_saved_and_retained(
    system: System, kept: float, saved: float, by_task: tuple[float, ...], mean_of_tasks: float
) -> None:
    shares = published_ratios(SCORES, system, retained)
    assert round(100 * (over_tasks(shares[task] for task in MAIN) or 0), 1) == kept
    sped = published_ratios(DAYS, system, speed_up)
    assert [round(sped[task].mean or 0, 2) for task in MAIN] == pytest.approx(by_task)
    for tasks in (MAIN, tuple(DAYS)):
        assert round(over_tasks(sped[task] for task in tasks) or 0, 1) == mean_of_tasks
    every = [ratio for ratios in sped.values() for ratio in ratios.by_language.values()]
    assert round(mean(every), 1) == saved

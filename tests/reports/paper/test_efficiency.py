import math
from statistics import mean

import pytest

from lingraft.config.systems import System
from lingraft.errors import LingraftError
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
from lingraft.reports.paper.published import DAYS, RETAINED_PERCENT, SCORES, SPEED_UPS, PublishedTable
from tests.reports.paper.printed import AVERAGE_DAYS, AVERAGE_SCORES

MAIN = ("xnli", "mlqa", "paws-x")
BASE, SMALL, JOINT, POST = System.BL_BASE, System.BL_SMALL, System.MINIJOINT, System.MINIPOST


def curve(*points: tuple[float, float]) -> LearningCurve:
    return LearningCurve.of("XNLI de", points)


def speed_ups(system: System, tasks: tuple[str, ...] = MAIN) -> dict[str, Ratios]:
    return {task: speed_up(DAYS[task].row(system), DAYS[task].row(BASE)) for task in tasks}


def shares(system: System) -> dict[str, Ratios]:
    return {task: retained(SCORES[task].row(system), SCORES[task].row(BASE)) for task in MAIN}


def test_the_paper_s_example_is_reached_halfway_between_its_checkpoints() -> None:
    assert curve((5_000, 0.48), (10_000, 0.52)).reach(0.5) == pytest.approx((7_500, 5_000, 10_000))


def test_the_first_time_counts_even_if_the_score_falls_again() -> None:
    risen = curve((0, 0.2), (10, 0.6), (20, 0.3), (30, 0.9))
    assert risen.reach(0.5) == pytest.approx((7.5, 0, 10))


def test_a_target_met_exactly_is_reached_at_that_checkpoint() -> None:
    assert curve((0, 0.2), (10, 0.6), (20, 0.8)).reach(0.6) == Reached(10, 0, 10)


def test_a_curve_evaluated_at_update_0_interpolates_from_it() -> None:
    assert curve((0, 0.4), (1_000, 0.8)).reach(0.5) == pytest.approx((250, 0, 1_000))
    assert curve((0, 0.4), (1_000, 0.8)).reach(0.4) == Reached(0, 0, 0)


def test_what_the_first_checkpoint_had_reached_has_0_as_its_lower_estimate() -> None:
    assert curve((5_000, 0.7), (10_000, 0.8)).reach(0.5) == Reached(5_000, 0, 5_000)


def test_what_was_never_reached_is_infinite() -> None:
    assert curve((0, 0.1), (10, 0.49)).reach(0.5) == NEVER
    assert (math.inf, math.inf, math.inf) == NEVER


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
        ([(0, math.inf)], r"'XNLI de' has the score inf at 0"),
        ([(math.nan, 0.1)], r"'XNLI de' has a checkpoint at nan. Give costs that are finite"),
        ([(-1, 0.1)], r"'XNLI de' has a checkpoint at -1"),
    ],
)
def test_a_curve_that_cannot_be_read_is_refused_with_the_way_to_mend_it(
    points: list[tuple[float, float]], message: str
) -> None:
    with pytest.raises(CurveError, match=message) as raised:
        curve(*points)
    assert isinstance(raised.value, LingraftError)


def test_a_target_that_is_no_number_is_refused() -> None:
    with pytest.raises(CurveError, match="cannot be asked for the score nan"):
        curve((0, 0.1)).reach(math.nan)


def test_speed_up_is_the_mean_of_ratios_not_the_ratio_of_means() -> None:
    found = speed_up({"de": 1.0, "tr": 10.0}, {"de": 4.0, "tr": 10.0})
    assert found.by_language == {"de": 4.0, "tr": 1.0}
    assert found.mean == 2.5


def test_languages_without_a_ratio_are_named_with_the_reason() -> None:
    system = {"de": 1.0, "tr": math.inf, "ar": 2.0, "ru": 0.0, "sw": 1.0}
    reference = {"de": 2.0, "tr": 2.0, "ar": math.inf, "ru": 3.0, "el": 1.0}
    found = speed_up(system, reference)
    assert found.by_language == {"de": 2.0}
    assert found.left_out == {
        "tr": "never reached",
        "ar": "never reached by the reference",
        "ru": "reached before any update",
        "el": "no cost of the system",
        "sw": "no cost of the reference",
    }


def test_a_reference_that_needs_no_update_is_no_ratio_of_0() -> None:
    found = speed_up({"de": 5.0, "tr": 1.0, "ru": 0.0}, {"de": 0.0, "tr": 4.0, "ru": 0.0})
    assert found.mean == 4.0
    assert found.left_out == {"de": "reached by the reference before any update", "ru": "reached before any update"}


@pytest.mark.parametrize("cost", [-1.0, -math.inf, math.nan])
def test_a_cost_that_is_negative_or_no_number_is_refused(cost: float) -> None:
    with pytest.raises(CurveError, match=r"costs of the system have \{'tr': .*Give 0 or more, or infinity"):
        speed_up({"de": 1.0, "tr": cost}, {"de": 2.0, "tr": 2.0})
    with pytest.raises(CurveError, match=r"costs of the reference have \{'tr': "):
        speed_up({"de": 1.0, "tr": 2.0}, {"de": 2.0, "tr": cost})


def test_a_mean_over_no_language_is_none_rather_than_a_number() -> None:
    nothing = speed_up({"tr": math.inf}, {"tr": 2.0})
    assert nothing.mean is None
    assert over_tasks([nothing]) is None
    assert over_tasks([nothing, speed_up({"de": 1.0}, {"de": 3.0})]) == 3.0


def test_what_is_retained_is_named_where_it_cannot_be_told() -> None:
    found = retained({"de": 0.6, "tr": 0.1, "el": 0.2}, {"de": 0.8, "tr": 0.0, "ar": 0.5})
    assert found.by_language == {"de": pytest.approx(0.75)}
    assert found.left_out == {
        "tr": "the reference scores 0",
        "ar": "no score of the system",
        "el": "no score of the reference",
    }


@pytest.mark.parametrize(("system", "percent"), RETAINED_PERCENT.items())
def test_the_paper_s_cells_give_what_it_says_is_retained(system: System, percent: float) -> None:
    kept = over_tasks(shares(system).values())
    assert kept is not None
    assert round(100 * kept, 1) == percent
    assert {JOINT: 98.7, POST: 99.3}[system] == percent


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
    ("system", "by_task"), [(JOINT, (2.08, 1.91, 3.25)), (POST, (1.43, 1.56, 2.02))], ids=["MINIJOINT", "MINIPOST"]
)
def test_the_paper_s_days_give_its_speed_ups_per_task(system: System, by_task: tuple[float, ...]) -> None:
    assert [round(found.mean or 0, 2) for found in speed_ups(system).values()] == pytest.approx(by_task)


@pytest.mark.parametrize(("system", "mean_of_tasks"), [(JOINT, 2.4), (POST, 1.7)], ids=["MINIJOINT", "MINIPOST"])
@pytest.mark.parametrize("tasks", [MAIN, tuple(DAYS)], ids=["as printed", "with XQuAD"])
def test_the_mean_over_tasks_is_a_little_above_the_paper_s_own(
    system: System, mean_of_tasks: float, tasks: tuple[str, ...]
) -> None:
    found = over_tasks(speed_ups(system, tasks).values())
    assert found is not None
    assert round(found, 1) == mean_of_tasks


@pytest.mark.parametrize(("system", "printed"), SPEED_UPS.items())
def test_the_mean_over_all_cells_meets_the_paper_s_own(system: System, printed: float) -> None:
    ratios = [ratio for task in speed_ups(system, tuple(DAYS)).values() for ratio in task.by_language.values()]
    assert round(mean(ratios), 1) == printed

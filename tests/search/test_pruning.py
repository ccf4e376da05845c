"""Trials stop when what they are for is beaten for no more compute, and not before."""

import pytest

from lingraft.config.search import Goal
from lingraft.search.pruning import Scores, should_prune

LOOKS = range(1, 5)
LEADER = {0: 0.0, 1: 0.4, 2: 0.6, 3: 0.7, 4: 0.75}


EARLY_LEADER = {0: 0.0, 1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5}
THERE_AT_THREE = {0: 0.0, 1: 0.1, 2: 0.3, 3: 0.7}
FLAT = {0: 0.0, 1: 0.0, 2: 0.0}
SLOW = {0: 0.0, 1: 0.1, 2: 0.15}


@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize(
    ("own", "looks", "others", "stops"),
    [
        pytest.param({0: 0.5, 1: 0.1}, LOOKS, [], False, id="nobody else has begun"),
        pytest.param({0: 0.5, 1: 0.1}, LOOKS, [{}], False, id="nobody else has a score"),
        pytest.param({0: 0.0}, LOOKS, [LEADER], False, id="one score has no slope"),
        pytest.param({3: 0.1, 4: 0.1}, LOOKS, [LEADER], False, id="the trial has ended"),
        pytest.param(FLAT, range(2, 5), [LEADER], True, id="after the grace period"),
        pytest.param(FLAT, range(3, 5), [LEADER], False, id="within the grace period"),
        pytest.param(FLAT, range(3, 3), [LEADER], False, id="a short trial ends within the grace period"),
    ],
)
def test_all_goals_stop_a_beaten_trial_after_its_grace_period(
    goal: Goal, own: Scores, looks: range, others: list[Scores], stops: bool
) -> None:
    assert should_prune(goal, own, looks, others, target=0.7) == stops


@pytest.mark.parametrize(
    ("own", "looks", "others", "stops"),
    [
        pytest.param({0: 0.0, 1: 0.1, 2: 0.2}, LOOKS, [LEADER], True, id="would end below the leader"),
        pytest.param({0: 0.0, 1: 0.1, 2: 0.45}, LOOKS, [LEADER], False, id="would end above the leader"),
        pytest.param({0: 0.0, 1: 0.55}, range(1, 3), [{4: 2.0}], False, id="others have spent more"),
        pytest.param({0: 0.0, 1: 0.55}, LOOKS, [{4: 2.3}], True, id="others have spent as much"),
        pytest.param({1: 0.5, 2: 0.4}, LOOKS, [{2: 0.39}], False, id="a falling score stays"),
        pytest.param({1: 0.5, 2: 0.4}, LOOKS, [{2: 0.41}], True, id="a falling score does not rise"),
        pytest.param({1: 0.4, 2: 0.4}, LOOKS, [{2: 0.4}], False, id="a tie"),
    ],
)
def test_for_the_score_a_trial_stops_whose_end_is_beaten(
    own: Scores, looks: range, others: list[Scores], stops: bool
) -> None:
    assert should_prune(Goal.SCORE, own, looks, others) == stops


@pytest.mark.parametrize(
    ("own", "others", "stops"),
    [
        ({0: 0.0, 1: 0.2, 2: 0.35}, [EARLY_LEADER], False),
        ({0: 0.0, 1: 0.2, 2: 0.25}, [EARLY_LEADER], True),
        ({0: 0.0, 1: 0.2, 2: 0.35}, [EARLY_LEADER, {3: 0.51, 4: 0.66}], True),
    ],
)
def test_for_the_front_a_trial_goes_on_while_any_look_may_still_be_on_it(
    own: Scores, others: list[Scores], stops: bool
) -> None:
    assert should_prune(Goal.PARETO, own, LOOKS, others) == stops


@pytest.mark.parametrize(
    ("own", "other", "target", "stops"),
    [
        pytest.param({0: 0.0, 1: 0.2, 2: 0.4}, THERE_AT_THREE, 0.65, True, id="later than another"),
        pytest.param({0: 0.0, 1: 0.2, 2: 0.45}, THERE_AT_THREE, 0.65, False, id="as early as another"),
        pytest.param(SLOW, {2: 0.5}, 0.9, True, id="nobody reaches it, another is better"),
        pytest.param(SLOW, {2: 0.2}, 0.9, False, id="nobody reaches it, this one is best"),
    ],
)
def test_for_compute_a_trial_stops_that_is_late_or_will_not_arrive(
    own: Scores, other: Scores, target: float, stops: bool
) -> None:
    assert should_prune(Goal.COMPUTE, own, LOOKS, [other], target) == stops

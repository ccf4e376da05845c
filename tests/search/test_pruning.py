"""Trials stop when what they are for is beaten for no more compute, and not before."""

import pytest

from lingraft.config.search import Goal
from lingraft.search.pruning import should_prune

LOOKS = range(1, 5)
LEADER = {0: 0.0, 1: 0.4, 2: 0.6, 3: 0.7, 4: 0.75}


@pytest.mark.parametrize("goal", Goal)
def test_a_trial_goes_on_while_nobody_else_has_measured_anything(goal: Goal) -> None:
    assert not should_prune(goal, {0: 0.5, 1: 0.1}, LOOKS, [], target=0.9)
    assert not should_prune(goal, {0: 0.5, 1: 0.1}, LOOKS, [{}], target=0.9)


@pytest.mark.parametrize("goal", Goal)
def test_one_look_tells_nothing_of_where_a_trial_goes(goal: Goal) -> None:
    assert not should_prune(goal, {0: 0.0}, LOOKS, [LEADER], target=0.7)


@pytest.mark.parametrize("goal", Goal)
def test_a_trial_that_has_ended_is_not_stopped(goal: Goal) -> None:
    assert not should_prune(goal, {3: 0.1, 4: 0.1}, LOOKS, [LEADER], target=0.7)


def test_a_trial_that_would_end_below_what_another_has_reached_is_stopped() -> None:
    assert should_prune(Goal.SCORE, {0: 0.0, 1: 0.1, 2: 0.2}, LOOKS, [LEADER])
    assert not should_prune(Goal.SCORE, {0: 0.0, 1: 0.1, 2: 0.45}, LOOKS, [LEADER])


def test_what_others_reach_for_more_compute_is_no_reason_to_stop() -> None:
    """A trial of half the budget is not compared with what others have after the whole of it."""
    own = {0: 0.0, 1: 0.55}
    assert not should_prune(Goal.SCORE, own, range(1, 3), [{4: 2.0}])
    assert should_prune(Goal.SCORE, own, LOOKS, [{4: 2.3}])


def test_a_falling_score_is_taken_to_stay_and_not_to_fall_on() -> None:
    assert not should_prune(Goal.SCORE, {1: 0.5, 2: 0.4}, LOOKS, [{2: 0.39}])
    assert should_prune(Goal.SCORE, {1: 0.5, 2: 0.4}, LOOKS, [{2: 0.41}])


def test_a_tie_is_not_beaten() -> None:
    assert not should_prune(Goal.SCORE, {1: 0.4, 2: 0.4}, LOOKS, [{2: 0.4}])


def test_for_the_front_a_trial_goes_on_while_any_look_may_still_be_on_it() -> None:
    early_leader = {0: 0.0, 1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5}
    own = {0: 0.0, 1: 0.2, 2: 0.35}
    assert not should_prune(Goal.PARETO, own, LOOKS, [early_leader])
    assert should_prune(Goal.PARETO, {0: 0.0, 1: 0.2, 2: 0.25}, LOOKS, [early_leader])
    assert should_prune(Goal.PARETO, own, LOOKS, [early_leader, {3: 0.51, 4: 0.66}])


def test_for_compute_a_trial_stops_that_would_be_at_the_target_later_than_another() -> None:
    there_at_three = {0: 0.0, 1: 0.1, 2: 0.3, 3: 0.7}
    assert should_prune(Goal.COMPUTE, {0: 0.0, 1: 0.2, 2: 0.4}, LOOKS, [there_at_three], target=0.65)
    assert not should_prune(Goal.COMPUTE, {0: 0.0, 1: 0.2, 2: 0.45}, LOOKS, [there_at_three], target=0.65)


def test_for_compute_a_trial_that_reaches_no_target_goes_on_only_if_it_is_the_best() -> None:
    slow = {0: 0.0, 1: 0.1, 2: 0.15}
    assert should_prune(Goal.COMPUTE, slow, LOOKS, [{2: 0.5}], target=0.9)
    assert not should_prune(Goal.COMPUTE, slow, LOOKS, [{2: 0.2}], target=0.9)


@pytest.mark.parametrize("goal", Goal)
def test_no_trial_is_stopped_in_its_time_of_grace(goal: Goal) -> None:
    flat = {0: 0.0, 1: 0.0, 2: 0.0}
    assert should_prune(goal, flat, range(2, 5), [LEADER], target=0.7)
    assert not should_prune(goal, flat, range(3, 5), [LEADER], target=0.7)


@pytest.mark.parametrize("goal", Goal)
def test_a_short_trial_may_end_in_its_time_of_grace(goal: Goal) -> None:
    assert not should_prune(goal, {0: 0.0, 1: 0.0, 2: 0.0}, range(3, 3), [LEADER], target=0.7)

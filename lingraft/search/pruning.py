"""Pruning: when a trial stops early. Optuna's pruners refuse studies of two goals, so all goals share this rule.

A trial is extrapolated along the straight line through its last two evaluations (looks) to the end of its budget.
Learning curves flatten, so most trials end below that line. A trial is *beaten* at an evaluation if another trial has a
better score at that evaluation or before, and so for no more compute. When a trial stops depends on the goal:

- score: its extrapolated end is beaten;
- pareto: all of its extrapolated scores are beaten;
- compute: it would reach the target later than another trial did, or it would not reach it and its end is beaten.

The line is not a bound. Many curves begin with a plateau, so trials have a grace period; and a learning rate that falls
to 0 raises scores at the end. The rule may cost accuracy: `benchmarks/depth_search.py` compares it with the full grid.
"""

from collections.abc import Iterable, Mapping

from lingraft.config.search import Goal

Scores = Mapping[int, float]
"""Scores by number of the evaluation; 0 is before any update."""


def should_prune(goal: Goal, own: Scores, looks: range, others: Iterable[Scores], target: float | None = None) -> bool:
    """Return whether to stop a trial that will not reach the goal of the search.

    Args:
        goal: goal of the search.
        own: scores of the trial so far.
        looks: numbers of the evaluations at which the trial may stop, and of its last; empty if it ends within the
            grace period.
        others: scores of all other trials, including those that were pruned or are running.
        target: score to reach, for goal compute.
    """
    seen = sorted(own)
    rivals = [*others]
    if len(seen) < 2 or seen[-1] not in looks[:-1]:
        return False
    last = looks[-1]
    extrapolated = _extrapolate(own, seen, last)
    beaten = {look: any(_best_until(look, rival) > score for rival in rivals) for look, score in extrapolated.items()}
    if goal is Goal.PARETO:
        return all(beaten.values())
    if goal is Goal.SCORE or target is None:
        return beaten[last]
    first = min((look for rival in rivals for look, score in rival.items() if score >= target), default=None)
    late = first is not None and all(score < target for look, score in extrapolated.items() if look <= first)
    return late or (beaten[last] and extrapolated[last] < target)


def _extrapolate(own: Scores, seen: list[int], last: int) -> dict[int, float]:
    """Scores of the remaining evaluations on the line through the last two; a falling line is taken as flat."""
    before, now = seen[-2:]
    slope = max(0.0, (own[now] - own[before]) / (now - before))
    return {look: own[now] + slope * (look - now) for look in range(now + 1, last + 1)}


def _best_until(look: int, scores: Scores) -> float:
    return max((score for at, score in scores.items() if at <= look), default=float("-inf"))

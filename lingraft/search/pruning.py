"""When a trial is hopeless: Optuna's pruners refuse studies of two goals, so all goals share this rule.

A trial's *promise* is the straight line through its last two looks, on to the end of its budget. Learning curves
flatten, so that is more than most trials keep. It is *beaten* at a look if another trial has measured a better score
at that look or before, and so for no more compute. A trial stops when what it is for is beaten:

- goal score: the end of its promise;
- goal pareto: all of its promise, look by look;
- goal compute: it would reach the target later than another trial did; or not at all, and its end is beaten.

The line is no bound. Many curves begin with a plateau, for which trials get some grace; and a learning rate that
falls to 0 lifts scores at the end. What a rule saves, it may lose in accuracy: `benchmarks/depth_search.py` compares
it with the grid run to completion.
"""

from collections.abc import Iterable, Mapping

from lingraft.config.search import Goal

Scores = Mapping[int, float]
"""By the number of the look; 0 is before any update."""


def should_prune(goal: Goal, own: Scores, looks: range, others: Iterable[Scores], target: float | None = None) -> bool:
    """Whether a trial will not be what the search is for.

    Args:
        goal: of the search.
        own: the trial's scores so far.
        looks: from the first at which a trial may be stopped to its last; none if it ends in its time of grace.
        others: scores of all other trials, also of those that were stopped or still run.
        target: goal compute: the score to reach.
    """
    seen, rivals = sorted(own), [*others]
    if len(seen) < 2 or seen[-1] not in looks[:-1]:
        return False
    last = looks[-1]
    promise = _extrapolate(own, seen, last)
    beaten = {look: any(_best_until(look, rival) > score for rival in rivals) for look, score in promise.items()}
    if goal is Goal.PARETO:
        return all(beaten.values())
    if goal is Goal.SCORE or target is None:
        return beaten[last]
    first = min((look for rival in rivals for look, score in rival.items() if score >= target), default=None)
    late = first is not None and all(score < target for look, score in promise.items() if look <= first)
    return late or (beaten[last] and promise[last] < target)


def _extrapolate(own: Scores, seen: list[int], last: int) -> dict[int, float]:
    """Scores of the looks that are left, by the line through the last two; one that fell is not taken to go on so."""
    before, now = seen[-2:]
    slope = max(0.0, (own[now] - own[before]) / (now - before))
    return {look: own[now] + slope * (look - now) for look in range(now + 1, last + 1)}


def _best_until(look: int, scores: Scores) -> float:
    return max((score for at, score in scores.items() if at <= look), default=float("-inf"))

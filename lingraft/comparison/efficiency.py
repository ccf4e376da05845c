"""Compute that a system spends until its score is near enough to the target (paper section 4.2 and appendix A.4).

`tests/comparison/test_efficiency.py` feeds this the paper's own tables.
"""

import math
from dataclasses import dataclass

import numpy as np

NEAR_MAXIMAL = 0.95
"""Share of BL_BASE's final score that counts as near-maximal (section 4.2)."""
_INFORMATIVE_MARGIN = 0.05 - 1e-9
"""Points, as a share, by which BL_BASE must beat the trivial answer; less the rounding of binary fractions."""


@dataclass(frozen=True)
class LearningCurve:
    """Scores at checkpoints of rising cost, in whatever the curve counts: updates, FLOPs or seconds."""

    costs: tuple[float, ...]
    scores: tuple[float, ...]

    def reach(self, target: float) -> float:
        """Return the cost at which the curve first reaches a score, interpolated between the checkpoints before and
        after (A.4); infinite if it never does.

        A curve that is there at its first checkpoint is taken to have got there at that checkpoint: there is nothing
        before it to interpolate from.
        """
        place = next((place for place, score in enumerate(self.scores) if score >= target), None)
        if place is None:
            return math.inf
        if place == 0:
            return self.costs[0]
        (before, after), (low, high) = self.costs[place - 1 : place + 1], self.scores[place - 1 : place + 1]
        return before + (target - low) / (high - low) * (after - before)

    def at(self, cost: float) -> float | None:
        """Return the score when so much was spent, interpolated between checkpoints; None beyond the curve's ends."""
        is_within = self.costs[0] <= cost <= self.costs[-1]
        return float(np.interp(cost, self.costs, self.scores)) if is_within else None


def near_maximal(reference: float) -> float:
    """Return the score to reach: 95% of the final score of BL_BASE."""
    return NEAR_MAXIMAL * reference


def informative(reference: float, trivial: float) -> bool:
    """Return whether BL_BASE is 5 points or more above the trivial answer, so that its score says something."""
    return reference - trivial >= _INFORMATIVE_MARGIN


def speed_up(own: float, base: float) -> float | str:
    """Return how many times less than BL_BASE a system spends until near-maximal performance (section 4.2), or why
    there is no such number; a cost is infinite where the target was never reached.
    """
    if math.isinf(own) or math.isinf(base):
        return "never reached" if math.isinf(own) else "never reached by BL_BASE"
    if own == 0 or base == 0:  # a ratio to no cost is undefined
        return "no update needed" if own == 0 else "BL_BASE alone needs no update"
    return base / own

"""Whether something grew: a straight line through what was measured, moments of one kind compared with each other.

The server holds more tables in some moments of a cycle of changes than in others. So each moment of it has a level of
its own, and one slope is fitted to all: least squares with an intercept for each.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple


class Moment(NamedTuple):
    """Measurement at one place of a cycle."""

    place: str
    at_s: float
    value: float


class Growth(NamedTuple):
    """How much more there is at the end than at the beginning, by the line."""

    grown: float
    error: float
    """Standard error of it; the moments are taken for independent."""
    level: float
    """Mean of all moments."""
    elapsed_s: float
    """Seconds from the first moment to the last."""


def growth(moments: Sequence[Moment]) -> Growth | None:
    """Fit the line; None where fewer than three moments could be compared with another one of their kind."""
    by_place: dict[str, list[Moment]] = defaultdict(list)
    for each in moments:
        by_place[each.place].append(each)
    compared = [found for found in by_place.values() if len(found) > 1]
    count = sum(map(len, compared))
    free = count - len(compared) - 1
    if free < 1:
        return None
    apart = [pair for found in compared for pair in _apart(found)]
    spread = sum(s**2 for s, _ in apart)
    slope = sum(s * value for s, value in apart) / spread
    left = sum((value - slope * s) ** 2 for s, value in apart)
    times = [each.at_s for found in compared for each in found]
    elapsed_s = max(times) - min(times)
    level = fmean(each.value for found in compared for each in found)
    return Growth(slope * elapsed_s, math.sqrt(left / free / spread) * elapsed_s, level, elapsed_s)


def _apart(found: Sequence[Moment]) -> list[tuple[float, float]]:
    """Time and value of moments of one kind, from their means."""
    mean_s, mean = fmean(each.at_s for each in found), fmean(each.value for each in found)
    return [(each.at_s - mean_s, each.value - mean) for each in found]

"""Sides in turns, so that whatever else the machine does meets all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def in_turns(sides: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each side in each round; each runs once before, to fetch memory from the system."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side()
    for number in range(rounds):
        # Every other round backwards: no side always comes after the same one.
        for name in list(sides)[:: -1 if number % 2 else 1]:
            began = time.perf_counter()
            sides[name]()
            found[name].append(1000 * (time.perf_counter() - began))
    return found


def medians(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of each side."""
    return {name: statistics.median(each) for name, each in found.items()}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of all does not exceed."""
    ranked = sorted(values)
    return ranked[max(0, min(len(ranked) - 1, -(-int(share * 1000) * len(ranked) // 1000) - 1))]

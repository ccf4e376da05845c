"""A paired bootstrap: the interval of the difference between two evaluations of the same items.

Legend: R resamples, N items, S finetuning seeds.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lingraft.config.gate import Gate
from lingraft.errors import GateError
from lingraft.tasks.item_counts import ItemCounts

_CELLS_AT_ONCE = 1 << 22
"""Largest number of cells of the table of resamples and items in memory: 32 MB."""


class Difference(NamedTuple):
    """Difference of two scores (ours minus theirs, as shares), with the ends of its interval."""

    estimate: float
    lower: float
    upper: float


def difference(ours: Sequence[ItemCounts], theirs: Sequence[ItemCounts], gate: Gate) -> Difference:
    """Return the difference of two scores, each the mean over seeds of the share found in all items, with its interval.

    Every resample draws N items with replacement, the same ones for both sides. The interval's ends are percentiles of
    the resamples' differences.

    Args:
        ours: counts of N items for each seed.
        theirs: counts of the other side, of the same form.
        gate: number of resamples, seed, and confidence of the interval.

    Raises:
        GateError: there is no item, or not the same number in all tallies.
    """
    counts = {len(tally) for tally in (*ours, *theirs)}
    if len(counts) != 1 or not min(counts):
        raise GateError(f"tallies of {sorted(counts)} items cannot be paired. Judge both on the same, non-empty text.")
    [items] = counts
    generator = np.random.default_rng(gate.seed)
    rows = max(1, _CELLS_AT_ONCE // items)
    parts = [min(rows, gate.resamples - start) for start in range(0, gate.resamples, rows)]
    draws = (generator.multinomial(items, np.full(items, 1 / items), size) for size in parts)
    differences_R = np.concatenate([_scores(ours, times_RN) - _scores(theirs, times_RN) for times_RN in draws])
    tail = (1 - gate.confidence) / 2
    lower, upper = np.quantile(differences_R, [tail, 1 - tail])
    once_1N = np.ones((1, items))
    return Difference(float((_scores(ours, once_1N) - _scores(theirs, once_1N))[0]), float(lower), float(upper))


def _scores(tallies: Sequence[ItemCounts], times_RN: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
    found_RS = times_RN @ np.stack([tally.found_N for tally in tallies], axis=1)
    out_of_RS = times_RN @ np.stack([tally.out_of_N for tally in tallies], axis=1)
    shares_RS = np.divide(found_RS, out_of_RS, out=np.zeros_like(found_RS), where=out_of_RS > 0)
    return np.asarray(shares_RS.mean(axis=1), np.float64)

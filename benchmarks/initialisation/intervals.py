"""Intervals of final scores, by bootstrap over pretraining seeds and test items at once.

Legend: R resamples, S seeds, N items of a language's test set. All systems are resampled alike: the items of a test set
are the same for all of them, as are the seeds that their primaries were pretrained with.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.initialisation.costs import Record
from lingraft.config.systems import System

Scores = NDArray[np.float64]
RESAMPLES = 2000
_SEED = 1
_PERCENTILES = (2.5, 97.5)


class Interval(NamedTuple):
    """A value as measured, and the 95% interval about it."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, found_R: Scores) -> Self:
        """Make an interval of values of which the first is as measured, the others of resamples."""
        low, high = np.percentile(found_R[1:], _PERCENTILES)
        return cls(float(found_R[0]), float(low), float(high))


class FinalScores(NamedTuple):
    """Final scores of systems, over what all of them have."""

    by_system: dict[str, Scores]
    """Means over languages and seeds: as measured first, then of each resample."""
    languages: list[str]
    seeds: list[int]


def final_scores(records: Iterable[Record], task: str) -> FinalScores:
    """Final scores of each system, over the languages that all systems have, and the seeds complete in these.

    Args:
        records: of one start.
        task: a record without its items is left out.
    """
    items = {
        (record["system"], record["language"], record["seed"]): record["items"][task]
        for record in records
        if task in record.get("items", {})
    }
    systems, languages, seeds = (sorted({key[place] for key in items}) for place in range(3))
    began = {(system, language) for system, language, _ in items}
    languages = [one for one in languages if all((system, one) in began for system in systems)]
    seeds = [seed for seed in seeds if all((system, one, seed) in items for system in systems for one in languages)]
    if not languages or not seeds:
        return FinalScores({}, [], [])
    random = np.random.default_rng(_SEED)
    chosen_RS = random.integers(len(seeds), size=(1 + RESAMPLES, len(seeds)))
    chosen_RS[0] = np.arange(len(seeds))
    total = {system: np.zeros(1 + RESAMPLES) for system in systems}
    for language in languages:
        times_RN = _times(len(items[systems[0], language, seeds[0]]["found"]), random)
        for system in systems:
            by_seed_RS = np.stack([_scores(items[system, language, seed], times_RN) for seed in seeds], axis=1)
            total[system] += np.take_along_axis(by_seed_RS, chosen_RS, axis=1).mean(axis=1) / len(languages)
    return FinalScores(total, languages, seeds)


def shares_of_base(scores: Mapping[str, Scores]) -> dict[str, Interval]:
    """Each system's share of BL_BASE's score."""
    base_R = scores[System.BL_BASE]
    return {system: Interval.of(found_R / base_R) for system, found_R in scores.items()}


def mean_over(values: Mapping[tuple[str, int], float]) -> Interval | None:
    """Mean by language and seed, over the seeds that all languages have, resampled over both; None without one.

    Args:
        values: NaN is left out of the mean, as the paper leaves out what a system never reaches (table A1).
    """
    languages = sorted({language for language, _ in values})
    seeds = sorted({seed for _, seed in values if all((language, seed) in values for language in languages)})
    table_LS = np.array([[values[language, seed] for seed in seeds] for language in languages])
    if not np.isfinite(table_LS).any():
        return None
    random = np.random.default_rng(_SEED)
    rows_RL, columns_RS = (random.integers(size, size=(RESAMPLES, size)) for size in table_LS.shape)
    drawn_RLS = table_LS[rows_RL[:, :, None], columns_RS[:, None, :]]
    drawn_RLS = drawn_RLS[np.isfinite(drawn_RLS).any(axis=(1, 2))]
    return Interval.of(np.concatenate([[np.nanmean(table_LS)], np.nanmean(drawn_RLS, axis=(1, 2))]))


def _times(items: int, random: np.random.Generator) -> NDArray[np.int64]:
    """How many times each item was drawn (1 + R, N): once in the first row, which is as measured."""
    drawn_RN = random.multinomial(items, np.full(items, 1 / items), size=RESAMPLES)
    return np.concatenate([np.ones((1, items), dtype=drawn_RN.dtype), drawn_RN])


def _scores(items: Mapping[str, Sequence[Any]], times_RN: NDArray[np.int64]) -> Scores:
    found_N, out_of_N = np.asarray(items["found"], float), np.asarray(items["out_of"], float)
    scores_R: Scores = (times_RN @ found_N) / np.maximum(times_RN @ out_of_N, 1.0)
    return scores_R

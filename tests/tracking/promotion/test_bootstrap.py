"""The paired bootstrap: what it estimates, how sure it is, and that it depends on nothing but its numbers."""

import numpy as np
import pytest

from lingraft.config.gate import Gate
from lingraft.errors import GateError
from lingraft.tasks.item_counts import ItemCounts
from lingraft.tracking.gate import difference

GATE = Gate()


def drawn(rate: float, items: int, seed: int, each: int = 1) -> ItemCounts:
    generator = np.random.default_rng(seed)
    return ItemCounts.of(generator.binomial(each, rate, items), np.full(items, each))


def test_the_estimate_is_the_difference_of_the_scores_in_which_seeds_count_alike() -> None:
    ours, theirs = ItemCounts.of([3, 1], [4, 8]), ItemCounts.of([1, 1], [2, 8])
    assert difference([ours], [theirs], GATE).estimate == pytest.approx(4 / 12 - 2 / 10)
    seeds = [ItemCounts.of([1, 1]), ItemCounts.of([0, 1])], [ItemCounts.of([0, 0]), ItemCounts.of([1, 1])]
    assert difference(*seeds, GATE).estimate == pytest.approx(0.75 - 0.5)


def test_the_interval_is_as_wide_as_the_normal_approximation_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = drawn(0.5, 2000, 1), drawn(0.4, 2000, 2)
    found = difference([ours], [theirs], GATE)
    spread = float(np.std(ours.found_N - theirs.found_N)) / np.sqrt(2000)
    assert found.lower == pytest.approx(found.estimate - 1.96 * spread, abs=0.003)
    assert found.upper == pytest.approx(found.estimate + 1.96 * spread, abs=0.003)
    monkeypatch.setattr(Gate, "confidence", 0.99)
    wider = difference([ours], [theirs], GATE)
    assert wider.lower < found.lower < found.upper < wider.upper


def test_items_are_drawn_in_pairs() -> None:
    """One item more of many is a small gain that is sure only if it is not compared with other items' luck."""
    theirs = drawn(0.5, 300, 3)
    better = ItemCounts.of(np.where(np.arange(300) % 10 == 0, 1.0, theirs.found_N))
    found = difference([better], [theirs], GATE)
    assert 0 < found.lower < found.estimate
    shuffled = ItemCounts.of(np.random.default_rng(5).permutation(theirs.found_N))
    assert difference([better], [shuffled], GATE).lower < 0


def test_an_interval_misses_the_truth_about_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "resamples", 200)
    misses = 0
    for seed in range(100):
        found = difference([drawn(0.3, 150, 2 * seed, 5)], [drawn(0.3, 150, 2 * seed + 1, 5)], GATE)
        misses += not found.lower <= 0 <= found.upper
    assert 1 <= misses <= 13


def test_the_same_numbers_give_the_same_interval_in_any_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = [drawn(0.5, 100, 1)], [drawn(0.4, 100, 2)]
    whole = difference(ours, theirs, GATE)
    monkeypatch.setattr("lingraft.tracking.gate._CELLS_AT_ONCE", 700)
    assert difference(ours, theirs, GATE) == whole
    monkeypatch.setattr(Gate, "seed", 7)
    assert difference(ours, theirs, GATE) != whole


def test_tallies_that_cannot_be_paired_are_refused() -> None:
    with pytest.raises(GateError, match=r"tallies of \[2, 3\] items cannot be paired"):
        difference([drawn(0.5, 2, 1)], [drawn(0.5, 3, 1)], GATE)
    with pytest.raises(GateError, match="non-empty"):
        difference([drawn(0.5, 0, 1)], [drawn(0.5, 0, 1)], GATE)

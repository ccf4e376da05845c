import random

import pytest
import torch

from lingraft.data.shuffling import ShuffledIndices

SIZES = [(1, None), (100, None), (100, 10), (103, 10), (5, 8), (20, 1)]


@pytest.mark.parametrize(("count", "window"), SIZES)
def test_every_epoch_has_each_row_once(count: int, window: int | None) -> None:
    order = ShuffledIndices(count, seed=3, window=window)
    for epoch in range(4):
        assert sorted(order.rows(epoch * count, count).tolist()) == list(range(count))


@pytest.mark.parametrize(("count", "window"), SIZES)
def test_any_place_is_known_by_itself(count: int, window: int | None) -> None:
    whole, draw = ShuffledIndices(count, 3, window).rows(0, 5 * count), random.Random(1)
    for _ in range(50):
        first, size = draw.randrange(4 * count), draw.randint(0, count)
        assert torch.equal(ShuffledIndices(count, 3, window).rows(first, size), whole[first : first + size])


@pytest.mark.parametrize("window", [None, 10])
def test_epochs_and_seeds_have_orders_of_their_own(window: int | None) -> None:
    order = ShuffledIndices(100, 3, window)
    orders = [order.rows(100 * epoch, 100).tolist() for epoch in range(3)] + [
        ShuffledIndices(100, 4, window).rows(0, 100).tolist()
    ]
    assert len({tuple(each) for each in orders}) == 4
    assert list(range(100)) not in orders


@pytest.mark.parametrize("count", [100, 103, 91])
def test_rows_of_a_window_come_together_and_windows_in_no_order(count: int) -> None:
    for epoch in range(3):
        rows = ShuffledIndices(count, 3, window=10).rows(epoch * count, count) // 10
        changes = rows[torch.cat([torch.tensor([True]), rows.diff() != 0])].tolist()
        assert sorted(changes) == list(range(-(-count // 10)))
        assert changes != sorted(changes)


@pytest.mark.parametrize("window", [None, 5])
def test_every_row_is_as_likely_at_every_place(window: int | None) -> None:
    counts = torch.zeros(10, 10)
    for seed in range(500):
        counts[torch.arange(10), ShuffledIndices(10, seed, window).rows(0, 10)] += 1
    expected = 500 / 10
    assert float((counts - expected).abs().max()) < 5 * expected**0.5

import random

import pytest
import torch

from lingraft.data.rng import ShuffledIndices


@pytest.mark.parametrize("count", [1, 100])
def test_every_epoch_has_each_row_once_and_any_place_is_known_by_itself(count: int) -> None:
    whole, draw = ShuffledIndices(count, 3).rows(0, 5 * count), random.Random(1)
    assert [sorted(epoch) for epoch in whole.view(5, count).tolist()] == [[*range(count)]] * 5
    for _ in range(50):
        first, size = draw.randrange(4 * count), draw.randint(0, count)
        assert torch.equal(ShuffledIndices(count, 3).rows(first, size), whole[first : first + size])


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [
        *ShuffledIndices(100, 3).rows(0, 300).view(3, 100).tolist(),
        ShuffledIndices(100, 4).rows(0, 100).tolist(),
    ]
    assert len({tuple(each) for each in orders}) == 4
    assert list(range(100)) not in orders

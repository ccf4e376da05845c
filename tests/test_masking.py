import pytest
import torch
from torch import Tensor

from lingraft.masking import NOT_PREDICTED, Masked, mask
from lingraft.tokenizer import BEGIN, END, MASK, SPECIAL_PIECES

VOCABULARY = 1000
SPECIALS = len(SPECIAL_PIECES)


def tokens(blocks: int = 400, length: int = 64) -> Tensor:
    """Blocks as they come from packing: <s> first, </s> here and there."""
    tokens_BT = torch.randint(SPECIALS, VOCABULARY, (blocks, length), generator=torch.Generator().manual_seed(7))
    tokens_BT[:, 0] = BEGIN
    tokens_BT[:, 20::17] = END
    return tokens_BT


def masked(tokens_BT: Tensor, rate: float = 0.15, seed: int = 1) -> Masked:
    return mask(tokens_BT, rate, VOCABULARY, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rate", [0.01, 0.15, 0.3, 0.5])
def test_exactly_the_share_asked_for_is_predicted(rate: float) -> None:
    tokens_BT = tokens()
    found = masked(tokens_BT, rate)
    assert len(found.positions_M) == len(found.targets_M) == round(rate * tokens_BT.numel())
    assert found.positions_M.diff().min() > 0
    assert torch.equal(found.targets_M, tokens_BT.flatten()[found.positions_M])


def test_of_the_predicted_eight_tenths_are_masked_one_replaced_one_kept() -> None:
    tokens_BT = tokens(2000)
    found = masked(tokens_BT)
    now_M = found.tokens_BT.flatten()[found.positions_M]
    hidden, kept = now_M == MASK, now_M == found.targets_M
    replaced_M = now_M[~hidden & ~kept]
    assert len(now_M) > 19_000
    assert float(hidden.float().mean()) == pytest.approx(0.8, abs=0.01)
    assert float(kept.float().mean()) == pytest.approx(0.1, abs=0.01)
    assert len(replaced_M) / len(now_M) == pytest.approx(0.1, abs=0.01)
    assert int(replaced_M.min()) >= SPECIALS
    assert len(replaced_M.unique()) > 0.8 * (VOCABULARY - SPECIALS)


def test_everything_else_stays_as_it_is() -> None:
    tokens_BT = tokens()
    before_BT = tokens_BT.clone()
    found = masked(tokens_BT)
    untouched = torch.ones(tokens_BT.numel(), dtype=torch.bool)
    untouched[found.positions_M] = False
    assert torch.equal(found.tokens_BT.flatten()[untouched], before_BT.flatten()[untouched])
    assert torch.equal(tokens_BT, before_BT)


def test_special_tokens_are_never_predicted() -> None:
    for seed in range(20):
        assert int(masked(tokens(), 0.5, seed).targets_M.min()) >= SPECIALS


def test_every_other_token_is_as_likely_to_be_predicted() -> None:
    tokens_BT = tokens(16, 16)
    counts = torch.zeros(tokens_BT.numel())
    for seed in range(2000):
        counts[masked(tokens_BT, 0.15, seed).positions_M] += 1
    ordinary = (tokens_BT >= SPECIALS).flatten()
    expected = counts.sum() / ordinary.sum()
    assert counts[~ordinary].sum() == 0
    assert (counts[ordinary] - expected).abs().max() < 6 * expected.sqrt()


def test_where_nearly_all_is_special_it_stays_and_does_not_count() -> None:
    tokens_BT = torch.full((4, 16), END)
    tokens_BT[:, 3] = torch.arange(10, 14)
    found = masked(tokens_BT, 0.5)
    assert len(found.targets_M) == 32
    assert sorted(found.targets_M[found.targets_M != NOT_PREDICTED].tolist()) == [10, 11, 12, 13]
    assert torch.equal(found.tokens_BT == END, tokens_BT == END)


def test_the_seed_decides_the_mask() -> None:
    one, same, other = (masked(tokens(), seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(mine, yours) for mine, yours in zip(one, same, strict=True))
    assert not torch.equal(one.positions_M, other.positions_M)


def test_a_generator_moves_on_from_batch_to_batch() -> None:
    generator = torch.Generator().manual_seed(1)
    first, second = (mask(tokens(), 0.15, VOCABULARY, generator) for _ in range(2))
    assert not torch.equal(first.positions_M, second.positions_M)

import pytest
import torch
from torch import Tensor

from lingraft.data.masking import NOT_PREDICTED, MaskedBatch, MaskingVocabulary, count_predicted, mask_tokens
from lingraft.data.rng import counter_random
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SpecialIds, SpecialPieces
from tests.calls import Calls

VOCABULARY, SPECIALS = 1000, len(DEFAULT_SPECIAL_IDS)
BEGIN, END, MASK = DEFAULT_SPECIAL_IDS.begin, DEFAULT_SPECIAL_IDS.end, DEFAULT_SPECIAL_IDS.mask
CPU = torch.device("cpu")
PIECES = MaskingVocabulary.of(VOCABULARY, DEFAULT_SPECIAL_IDS, CPU)
ELSEWHERE = {
    "ids of BERT": SpecialPieces(begin=101, pad=0, end=102, unknown=100, mask=103),
    "three pieces, as where roles share one": SpecialPieces(begin=0, pad=77, end=3, unknown=77, mask=77),
    "at both ends": SpecialPieces(begin=0, pad=1, end=2, unknown=3, mask=199),
}
"""Special pieces of tokenizers that are not our own."""


def tokens(blocks: int = 400, length: int = 64) -> Tensor:
    """Blocks as they come from packing: <s> first, </s> here and there."""
    tokens_BT = torch.randint(SPECIALS, VOCABULARY, (blocks, length), generator=torch.Generator().manual_seed(7))
    tokens_BT[:, 0] = BEGIN
    tokens_BT[:, 20::17] = END
    return tokens_BT


def masked(tokens_BT: Tensor, rate: float = 0.15, seed: int = 1) -> MaskedBatch:
    return mask_tokens(tokens_BT, rate, PIECES, seed)


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


def test_where_nearly_all_is_special_it_stays_and_does_not_count() -> None:
    tokens_BT = torch.full((4, 16), END)
    tokens_BT[:, 3] = torch.arange(10, 14)
    found = masked(tokens_BT, 0.5)
    assert len(found.targets_M) == 32
    assert sorted(found.targets_M[found.targets_M != NOT_PREDICTED].tolist()) == [10, 11, 12, 13]
    assert torch.equal(found.tokens_BT == END, tokens_BT == END)


@pytest.mark.parametrize("sizes", [[1] * 12, [5, 7], [2, 4, 6]])
@pytest.mark.parametrize("rate", [0.01, 0.15, 0.5])
def test_a_blocks_mask_does_not_depend_on_the_batch_it_comes_in(sizes: list[int], rate: float) -> None:
    tokens_BT = tokens(12, 30)
    whole = mask_tokens(tokens_BT, rate, PIECES, 1, first=7)
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    parts = [
        mask_tokens(part_BT, rate, PIECES, 1, first=7 + start)
        for start, part_BT in zip(starts, tokens_BT.split(sizes), strict=True)
    ]
    assert torch.equal(torch.cat([part.tokens_BT for part in parts]), whole.tokens_BT)
    assert torch.equal(torch.cat([part.targets_M for part in parts]), whole.targets_M)
    places = [part.positions_M + 30 * start for start, part in zip(starts, parts, strict=True)]
    assert torch.equal(torch.cat(places), whole.positions_M)


@pytest.mark.parametrize(("rate", "length"), [(0.15, 30), (0.01, 10), (0.3, 7), (1 / 3, 16)])
@pytest.mark.parametrize("first", [0, 7, 10**9])
def test_each_block_hides_as_many_as_are_due_where_its_lots_are_highest(rate: float, length: int, first: int) -> None:
    tokens_BT = torch.randint(SPECIALS, VOCABULARY, (9, length), generator=torch.Generator().manual_seed(7))
    lots = [counter_random(1, 3 * place, 1, length, CPU)[0] for place in range(first, first + 9)]
    counts = [count_predicted(rate, length, place, 1) for place in range(first, first + 9)]
    wanted = [
        row * length + place
        for row, (lots_T, count) in enumerate(zip(lots, counts, strict=True))
        for place in sorted(lots_T.argsort(descending=True)[:count].tolist())
    ]
    assert mask_tokens(tokens_BT, rate, PIECES, 1, first).positions_M.tolist() == wanted


def test_masking_neither_takes_numbers_from_the_host_nor_waits_for_the_device_to_count() -> None:
    tokens_BT = tokens()
    with Calls() as calls:
        mask_tokens(tokens_BT, 0.15, PIECES, seed=1)
    assert "topk" in calls.names
    assert calls.names.isdisjoint({"lift_fresh", "_to_copy", "copy_", "nonzero", "_local_scalar_dense"})


@pytest.mark.parametrize("special", ELSEWHERE.values(), ids=ELSEWHERE)
def test_special_pieces_of_another_tokenizer_are_neither_hidden_nor_drawn(special: SpecialIds) -> None:
    vocabulary = 200
    pieces = MaskingVocabulary.of(vocabulary, special, CPU)
    tokens_BT = torch.randint(vocabulary, (2000, 64), generator=torch.Generator().manual_seed(7))
    for place, index in enumerate(special, start=3):
        tokens_BT[:, place] = index
    ids = torch.tensor(sorted(set(special)))
    found = mask_tokens(tokens_BT, 0.5, pieces, seed=1)
    now_M = found.tokens_BT.flatten()[found.positions_M]
    assert not torch.isin(found.targets_M, ids).any()
    changed = now_M != found.targets_M
    replaced_M = now_M[changed & (now_M != special.mask)]
    assert not torch.isin(replaced_M, ids).any()
    assert sorted(replaced_M.unique().tolist()) == sorted(set(range(vocabulary)) - set(special))
    assert float((now_M == special.mask).float().mean()) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(("rate", "length"), [(0.15, 128), (0.15, 30), (0.01, 10), (0.3, 7), (1 / 3, 512)])
def test_places_predicted_are_the_share_of_all_so_far_to_the_nearest(rate: float, length: int) -> None:
    for blocks in (1, 2, 9, 1000):
        assert abs(count_predicted(rate, length, 0, blocks) - rate * length * blocks) <= 0.5
        assert sum(count_predicted(rate, length, place, 1) for place in range(5, 5 + blocks)) == count_predicted(
            rate, length, 5, blocks
        )

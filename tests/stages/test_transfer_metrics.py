"""Retrieval of counterparts, and the hidden states that it compares."""

import pytest
import torch

from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.model.encoder import Encoder
from lingraft.stages.transfer_metrics import OCCURRENCES, context_states, mean_states, retrieve

SHAPE = EncoderShape(width=32, layers=3, attention_heads=4, mlm_heads=(1, 3), block_tokens=32)
PIECES = 60


def rows(count: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, 16, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    """Of large random weights, so that hidden states differ plainly."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = Encoder(SHAPE, PIECES).eval()
    with torch.no_grad():
        for parameter in (made.vocabulary.table_VD, made.positions_TD):
            parameter.mul_(25)
        for layer in made.layers:
            layer.qkv.weight.mul_(10)
            layer.up.weight.mul_(10)
    return made


def test_a_language_that_is_the_source_finds_every_counterpart() -> None:
    found = retrieve(rows(50), rows(50))
    assert (found.scores.to_source, found.scores.from_source) == (1.0, 1.0)
    assert found.scores.mutual_cosine == pytest.approx(1.0)
    assert found.tally.score == found.scores.accuracy == 1.0


def test_a_shift_and_a_scale_of_a_whole_language_make_no_difference() -> None:
    assert retrieve(rows(50), 3 * rows(50) + 7).scores.accuracy == 1.0


def test_unrelated_states_find_about_one_in_so_many() -> None:
    found = retrieve(rows(400), rows(400)[torch.randperm(400, generator=torch.Generator().manual_seed(0))])
    assert found.scores.accuracy < 5 / 400
    assert found.scores.mutual_cosine == pytest.approx(1.0)  # which is why it is no measure alone


def test_both_directions_are_counted_for_each_pair() -> None:
    source, target = torch.eye(4), torch.eye(4)
    target[3] = target[0]  # the fourth row goes to the first source row, whose nearest remains the first
    found = retrieve(source, target)
    assert found.tally.out_of_N.tolist() == [2.0] * 4
    assert found.tally.found_N.tolist()[:3] == [2.0, 2.0, 2.0]
    assert found.scores.to_source == 0.75
    assert found.tally.score == pytest.approx((found.scores.to_source + found.scores.from_source) / 2)


def test_padding_and_special_pieces_make_no_difference(encoder: Encoder) -> None:
    texts = [[5, 6, 7], [*range(10, 24)], [8]]
    together = mean_states(encoder, texts, (1, 3))
    for place, ids in enumerate(texts):
        alone = mean_states(encoder, [ids], (1, 3))
        tokens_BT = torch.tensor([[DEFAULT_SPECIAL_IDS.begin, *ids, DEFAULT_SPECIAL_IDS.end]])
        with torch.inference_mode():
            hidden = encoder.hidden_states(tokens_BT, (1, 3))
        for depth in (1, 3):
            torch.testing.assert_close(together[depth][place], alone[depth][0], atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(alone[depth][0], hidden[depth][0, 1:-1].mean(0), atol=1e-5, rtol=1e-4)


def test_what_exceeds_a_block_is_cut_off(encoder: Encoder) -> None:
    room = encoder.shape.block_tokens - 2
    long, cut = [5 + n % 20 for n in range(3 * room)], [5 + n % 20 for n in range(room)]
    found = mean_states(encoder, [long, cut], (2,))[2]
    torch.testing.assert_close(found[0], found[1])


def test_a_context_is_the_mean_over_a_pieces_first_occurrences(encoder: Encoder) -> None:
    generator = torch.Generator().manual_seed(0)
    blocks_NT = torch.randint(6, 30, (OCCURRENCES + 4, encoder.shape.block_tokens), generator=generator)
    blocks_NT[:, 0] = DEFAULT_SPECIAL_IDS.begin
    blocks_NT[blocks_NT == 20] = 21
    blocks_NT[:, 4] = 20
    found = context_states(encoder, blocks_NT, torch.tensor([20]), (3,))[3][0]
    masked_NT = blocks_NT.clone()
    masked_NT[:, 4] = DEFAULT_SPECIAL_IDS.mask
    with torch.inference_mode():
        expected = encoder.hidden_states(masked_NT, (3,))[3][:OCCURRENCES, 4].mean(0)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from lingraft.config.encoder import EncoderShape
from lingraft.data.shards import blocks_in_memory
from lingraft.errors import RecipeError
from lingraft.model.encoder import Encoder
from lingraft.tasks.tagged_sentences import Sentence
from lingraft.tasks.tagging import Tagged, Tagger, Tagging
from lingraft.training.batches import block_stream, steps_for_epochs, task_stream
from lingraft.training.masked_lm import MaskedLmLoss
from tests.tasks.little import VOCABULARY

SHAPE = EncoderShape(width=32, layers=3, attention_heads=2, mlm_heads=(1, 2, 3), block_tokens=31)
BLOCKS = torch.randint(5, VOCABULARY, (50, 31), generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True)
class Rows:
    """Examples that are nothing but their number, and weigh as much."""

    count: int
    truncated: int = 0

    def __len__(self) -> int:
        return self.count

    def batch(self, chosen: Tensor) -> list[int]:
        return chosen.tolist()

    def length(self, row: int) -> int:
        return 3 + row * 7 % 20

    def targets(self, chosen: Tensor) -> int:
        return int((chosen + 1).sum())


def taken(micro_batches: Sequence[tuple[float, Any]]) -> Tensor:
    return torch.cat([drawn.tokens_BT for _, drawn in micro_batches])


@pytest.mark.parametrize("rate", [0.15, 0.3])
@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 6, 12])
def test_micro_batches_hold_the_rows_of_the_whole_batch_in_order(at_once: int, rate: float) -> None:
    whole, divided = (block_stream(blocks_in_memory(BLOCKS), 12, size, rate, seed=5) for size in (None, at_once))
    for step in (1, 2, 5, 1000):
        ((share, drawn),) = whole(step)
        assert (share, drawn.first) == (1.0, 12 * (step - 1))
        parts = divided(step)
        assert torch.equal(taken(parts), drawn.tokens_BT)
        assert [part.first for _, part in parts] == list(range(drawn.first, drawn.first + 12, at_once))
        assert sum(share for share, _ in parts) == pytest.approx(1, abs=1e-12)


def test_every_epoch_has_each_block_once_over_the_ends_of_batches() -> None:
    stream = block_stream(blocks_in_memory(BLOCKS), 12, 4, 0.15, seed=5)
    drawn = torch.cat([taken(stream(step)) for step in range(1, 26)])
    for epoch_NT in drawn.split(50):
        assert torch.equal(epoch_NT.unique(dim=0), BLOCKS.unique(dim=0))


def test_a_step_is_known_by_itself() -> None:
    stream = block_stream(blocks_in_memory(BLOCKS), 12, 4, 0.15, seed=5)
    in_turn = [taken(stream(step)) for step in range(1, 20)]
    for step in (19, 3, 7):
        fresh = block_stream(blocks_in_memory(BLOCKS), 12, 4, 0.15, seed=5)
        assert torch.equal(taken(fresh(step)), in_turn[step - 1])


def test_a_batch_that_cannot_be_divided_is_refused() -> None:
    with pytest.raises(RecipeError, match="batch_blocks 12 in micro-batches of 5 cannot be divided over 1 processes"):
        block_stream(blocks_in_memory(BLOCKS), 12, 5, 0.15, seed=5)


@pytest.mark.parametrize(("count", "batch"), [(123, 4), (128, 4), (7, 4), (3, 5)])
def test_grouped_by_length_every_epoch_has_each_row_once_in_batches_of_an_order_of_their_own(
    count: int, batch: int
) -> None:
    data, epochs = Rows(count), []
    steps = steps_for_epochs(data, batch, 1)
    stream = task_stream(data, batch, None, seed=2, group_by_length=True)
    for epoch in range(3):
        drawn = [[row for _, rows in stream(epoch * steps + step) for row in rows] for step in range(1, steps + 1)]
        assert sorted(row for rows in drawn for row in rows) == list(range(count))
        assert [len(rows) for rows in drawn].count(batch) == count // batch
        epochs.append(drawn)
    assert count < 5 or epochs[0] != epochs[1] != epochs[2]
    longest = [max(map(data.length, rows)) for rows in epochs[0]]
    assert count < 100 or longest != sorted(longest)


def test_grouping_by_length_leaves_little_padding_and_draws_other_neighbours_each_epoch() -> None:
    data, steps = Rows(640), 20
    at_random, grouped = (task_stream(data, 32, None, seed=2, group_by_length=group) for group in (False, True))
    padded = [
        sum(max(map(data.length, rows)) * len(rows) for step in range(1, steps + 1) for _, rows in stream(step))
        for stream in (at_random, grouped)
    ]
    full = sum(map(data.length, range(640)))
    assert padded[1] - full < (padded[0] - full) / 4
    beside = [
        {frozenset(rows) for step in range(1, steps + 1) for _, rows in grouped(step + begin)} for begin in (0, 20)
    ]
    assert not beside[0] & beside[1]


@pytest.mark.parametrize("at_once", [None, 1, 4, 100])
@pytest.mark.parametrize(("count", "batch"), [(23, 5), (20, 5), (3, 5), (1, 1)])
def test_every_epoch_of_a_task_has_each_row_once_with_a_short_last_batch(
    count: int, batch: int, at_once: int | None
) -> None:
    stream, steps = task_stream(Rows(count), batch, at_once, seed=2), -(-count // batch)
    assert steps_for_epochs(Rows(count), batch, 1) == steps
    epochs = []
    for epoch in range(3):
        drawn = [stream(epoch * steps + step) for step in range(1, steps + 1)]
        sizes = [sum(len(rows) for _, rows in micro_batches) for micro_batches in drawn]
        assert sizes == [batch] * (count // batch) + [count % batch] * (count % batch > 0)
        epochs.append([row for micro_batches in drawn for _, rows in micro_batches for row in rows])
        assert sorted(epochs[-1]) == list(range(count))
        for micro_batches in drawn:
            total = sum(row + 1 for _, rows in micro_batches for row in rows)
            shares = [sum(row + 1 for row in rows) / total for _, rows in micro_batches]
            assert [share for share, _ in micro_batches] == pytest.approx(shares)
            assert all(len(rows) <= (at_once or batch) for _, rows in micro_batches)
    assert count < 4 or len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("at_once", [1, 2, 3, 6])
def test_accumulated_gradients_are_those_of_the_whole_batch_over_several_heads(at_once: int) -> None:
    encoder = encoder_of(SHAPE)
    loss_of = MaskedLmLoss(encoder, (1, 2, 3), 0.15, seed=3)
    for step in (1, 4, 9):
        whole, divided = (
            gradients(encoder, loss_of, block_stream(blocks_in_memory(BLOCKS), 6, size, 0.15, 1)(step))
            for size in (None, at_once)
        )
        require_close(divided, whole)


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_accumulated_gradients_of_tags_are_those_of_the_whole_batch_whatever_each_sentence_has_of_words(
    at_once: int,
) -> None:
    lengths = [1, 9, 2, 14, 0, 5, 3]
    draw = torch.Generator().manual_seed(4)
    tokens = [torch.randint(5, VOCABULARY, (size + 2,), generator=draw).tolist() for size in lengths]
    labels = [[-100, *(place % 3 for place in range(size)), -100] for size in lengths]
    data = Tagged([Sentence("", (), ())] * 7, tokens, labels, ("O", "B-PER", "I-PER"), pad_id=1, truncated=0)
    tagger, tagging = Tagger(encoder_of(SHAPE), 3), Tagging()
    loss_of = lambda batch: tagging.loss(tagger, batch)  # noqa: E731
    for step in range(1, 9):
        whole, divided = (
            gradients(tagger, loss_of, task_stream(data, 4, size, seed=1)(step)) for size in (None, at_once)
        )
        require_close(divided, whole)


def encoder_of(shape: EncoderShape) -> Encoder:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return Encoder(shape, VOCABULARY)


def gradients(model: torch.nn.Module, loss_of: Any, micro_batches: Sequence[tuple[float, Any]]) -> dict[str, Tensor]:
    model.zero_grad()
    for share, batch in micro_batches:
        (loss_of(batch) * share).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def require_close(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-6 * max(largest, 1), msg=name)
    assert any(gradient.any() for gradient in wanted.values())


def test_steps_of_a_finetuning_are_whole_epochs_or_parts_of_one() -> None:
    found = {epochs: steps_for_epochs(Rows(23), 5, epochs) for epochs in (0.01, 0.5, 1, 2.5, 3)}
    assert found == {0.01: 1, 0.5: 2, 1: 5, 2.5: 12, 3: 15}

"""However a batch is divided over processes and micro-batches, the same rows are seen and weigh the same."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from lingraft import ranks
from lingraft.config.encoder import EncoderShape
from lingraft.data.shards import blocks_in_memory
from lingraft.errors import RecipeError
from lingraft.model.encoder import Encoder
from lingraft.tasks.tagged_sentences import Sentence
from lingraft.tasks.tagging import Tagged
from lingraft.training.batches import TokenBatches, block_stream, steps_for_epochs, task_stream, to_device
from lingraft.training.masked_lm import MaskedLmLoss
from tests.tasks.little import VOCABULARY

SHAPE = EncoderShape(width=32, layers=3, attention_heads=2, mlm_heads=(1, 2, 3), block_tokens=31)
BLOCKS = torch.randint(5, VOCABULARY, (50, 31), generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True)
class Rows:
    """Examples that are nothing but their number, and weigh as much and one more."""

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


@contextmanager
def process(rank: int, count: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORLD_SIZE", str(count))
        patch.setenv("RANK", str(rank))
        assert (ranks.rank(), ranks.is_rank_zero()) == (rank, rank == 0)
        yield


def drawn(count: int, at_once: int | None, steps: Sequence[int]) -> list[list[Any]]:
    """Shares and micro-batches of every step that all processes draw, in their order, each step by a fresh stream."""
    found: list[list[Any]] = [[] for _ in steps]
    for rank in range(count):
        with process(rank, count):
            for place, step in enumerate(steps):
                found[place] += block_stream(blocks_in_memory(BLOCKS), 12, at_once, 0.15, seed=5)(step)
    return found


def taken(micro_batches: Sequence[tuple[float, Any]]) -> Tensor:
    return torch.cat([batch.tokens_BT for _, batch in micro_batches])


@pytest.mark.parametrize(("count", "at_once"), [(1, 3), (1, 12), (2, None), (3, 2), (12, None)])
def test_every_division_of_a_batch_holds_its_blocks_in_order(count: int, at_once: int | None) -> None:
    steps = (1, 2, 5, 1000)
    for step, [(share, whole)], parts in zip(steps, drawn(1, None, steps), drawn(count, at_once, steps), strict=True):
        assert (share, whole.first) == (1.0, 12 * (step - 1))
        assert torch.equal(taken(parts), whole.tokens_BT)
        assert [part.first for _, part in parts] == list(range(whole.first, whole.first + 12, 12 // len(parts)))
        assert sum(share for share, _ in parts) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("count", "at_once"), [(1, 5), (5, None), (2, 4), (12, 2)])
def test_a_batch_that_cannot_be_divided_is_refused_by_every_process(count: int, at_once: int | None) -> None:
    for rank in range(count):
        with process(rank, count), pytest.raises(RecipeError, match=rf"batch_blocks 12 .* over {count} processes"):
            block_stream(blocks_in_memory(BLOCKS), 12, at_once, 0.2, seed=3)


@pytest.mark.parametrize(("count", "batch"), [(23, 5), (20, 5), (3, 5), (1, 1)])
def test_every_epoch_of_a_task_has_each_row_once_with_a_short_last_batch(count: int, batch: int) -> None:
    stream, steps = task_stream(Rows(count), batch, seed=2), -(-count // batch)
    epochs = []
    for epoch in range(3):
        taken = [rows for step in range(1, steps + 1) for _, rows in stream(epoch * steps + step)]
        assert [*map(len, taken)] == [batch] * (count // batch) + [count % batch] * (count % batch > 0)
        epochs.append([row for rows in taken for row in rows])
        assert sorted(epochs[-1]) == list(range(count))
    assert count < 4 or len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_examples_are_divided_so_that_each_counts_once(count: int) -> None:
    """An epoch of 23 ends with a batch of 3; every process has one part, or the others would wait for ever."""
    for step in range(1, 7):
        [(_, whole)] = task_stream(Rows(23), 10, seed=1)(step)
        weight, numbers = dict.fromkeys(whole, 0.0), set()
        for rank in range(count):
            with process(rank, count):
                parts = task_stream(Rows(23), 10, seed=1)(step)
            numbers.add(len(parts))
            for share, rows in parts:
                for row in rows:
                    weight[row] += share * (row + 1) / sum(other + 1 for other in rows)
        assert len(numbers) == 1
        assert weight == pytest.approx({row: (row + 1) / sum(other + 1 for other in whole) for row in whole})


@pytest.mark.parametrize(("count", "batch"), [(123, 4), (128, 4), (7, 4), (3, 5)])
def test_grouped_by_length_every_epoch_has_each_row_once_in_batches_of_an_order_of_their_own(
    count: int, batch: int
) -> None:
    data, epochs = Rows(count), []
    steps = steps_for_epochs(data, batch, 1)
    stream = task_stream(data, batch, seed=2, group_by_length=True)
    for epoch in range(3):
        taken = [[row for _, rows in stream(epoch * steps + step) for row in rows] for step in range(1, steps + 1)]
        assert sorted(row for rows in taken for row in rows) == list(range(count))
        assert [len(rows) for rows in taken].count(batch) == count // batch
        epochs.append(taken)
    assert count < 5 or epochs[0] != epochs[1] != epochs[2]
    longest = [max(map(data.length, rows)) for rows in epochs[0]]
    assert count < 100 or longest != sorted(longest)


def test_steps_of_a_finetuning_are_whole_epochs_or_parts_of_one() -> None:
    found = {epochs: steps_for_epochs(Rows(23), 5, epochs) for epochs in (0.01, 0.5, 1, 2.5, 3)}
    assert found == {0.01: 1, 0.5: 2, 1: 5, 2.5: 12, 3: 15}


@pytest.mark.parametrize("at_once", [1, 3])
def test_accumulated_gradients_are_those_of_the_whole_batch(at_once: int) -> None:
    """Over several heads."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        encoder = Encoder(SHAPE, VOCABULARY)
    for step in (1, 4):
        streams = [block_stream(blocks_in_memory(BLOCKS), 6, size, 0.15, 1)(step) for size in (None, at_once)]
        whole, divided = (gradients(encoder, MaskedLmLoss(encoder, (1, 2, 3), 0.15, 3), each) for each in streams)
        assert divided.keys() == whole.keys()
        largest = max(float(gradient.abs().max()) for gradient in whole.values())
        assert largest
        for name, gradient in whole.items():
            torch.testing.assert_close(divided[name], gradient, rtol=0, atol=1e-6 * max(largest, 1), msg=name)


def tagged() -> Tagged:
    lengths, draw = [1, 9, 2, 14, 0, 5, 3], torch.Generator().manual_seed(4)
    tokens = [torch.randint(5, VOCABULARY, (size + 2,), generator=draw).tolist() for size in lengths]
    labels = [[-100, *(place % 3 for place in range(size)), -100] for size in lengths]
    return Tagged([Sentence("", (), ())] * 7, tokens, labels, ("O", "B-PER", "I-PER"), pad_id=1, truncated=0)


def gradients(model: torch.nn.Module, loss_of: Any, micro_batches: Sequence[tuple[float, Any]]) -> dict[str, Tensor]:
    model.zero_grad()
    for share, batch in micro_batches:
        (loss_of(batch) * share).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_token_batches_have_every_row_once_an_epoch_and_keep_their_bound(processes: int) -> None:
    rows, bound = Rows(101), 60
    whole = rows.targets(torch.arange(101))
    steps = len(TokenBatches(rows, bound, 1).sizes)
    epochs = []
    for epoch in range(2):
        found: list[list[int]] = [[] for _ in range(steps)]
        shares = 0.0
        for rank in range(processes):
            with process(rank, processes):
                stream = TokenBatches(rows, bound, 1)
                for place in range(steps):
                    for share, batch in stream(epoch * steps + place + 1):
                        found[place] += batch if share else []
                        shares += share
                        weight = rows.targets(torch.tensor(batch)) / whole * steps
                        assert share in (0, pytest.approx(weight))
        assert sorted(itertools.chain(*found)) == [*range(101)]
        assert all(len(each) * max(map(rows.length, each)) <= bound for each in found)
        assert shares == pytest.approx(steps)
        epochs.append(found)
    assert epochs[0] != epochs[1]
    # Rows of 3 to 22 tokens in 60: padded to like lengths, most of what a batch holds is text.
    filled = sum(map(rows.length, range(101)))
    padded = sum(len(each) * max(map(rows.length, each)) for each in epochs[0])
    assert filled > 0.9 * padded


def test_a_row_longer_than_a_batch_stands_alone() -> None:
    rows = Rows(40)
    stream = TokenBatches(rows, 10, 1)
    batches = [stream(step)[0][1] for step in range(1, len(stream.sizes) + 1)]
    assert sorted(itertools.chain(*batches)) == [*range(40)]
    assert all(len(each) == 1 for each in batches if max(map(rows.length, each)) > 5)
    assert [each for each in batches if len(each) > 1]


class Tokens(NamedTuple):
    """A batch."""

    tokens_BT: Tensor
    types_BT: Tensor | None
    first: int


def test_all_tensors_of_a_batch_are_moved_and_nothing_else_changes() -> None:
    moved = to_device((0.25, Tokens(torch.ones(2), None, 7)), torch.device("meta"))
    assert (moved[0], type(moved[1]), moved[1].types_BT, moved[1].first) == (0.25, Tokens, None, 7)
    assert moved[1].tokens_BT.is_meta

"""However a batch is divided over processes and micro-batches, the same rows are seen and weigh the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from lingraft import ranks
from lingraft.data.shards import blocks_in_memory
from lingraft.errors import RecipeError
from lingraft.training.batches import block_stream, task_stream

BLOCKS, TOKENS = 37, 8


class Rows:
    """Examples that weigh differently; a batch is their numbers."""

    truncated = 0

    def __len__(self) -> int:
        return 23

    def batch(self, chosen: Tensor) -> list[int]:
        return chosen.tolist()

    def length(self, row: int) -> int:
        return 1

    def targets(self, chosen: Tensor) -> int:
        return int((chosen % 5 + 1).sum())


@contextmanager
def process(monkeypatch: pytest.MonkeyPatch, rank: int, count: int) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("WORLD_SIZE", str(count))
        patched.setenv("RANK", str(rank))
        assert (ranks.rank(), ranks.is_rank_zero()) == (rank, rank == 0)
        yield


def drawn(monkeypatch: pytest.MonkeyPatch, count: int, at_once: int | None, steps: range) -> list[list[Any]]:
    """Of every step: what all processes draw, in their order."""
    blocks_NT = torch.arange(BLOCKS)[:, None].expand(-1, TOKENS).contiguous()
    found: list[list[Any]] = [[] for _ in steps]
    for rank in range(count):
        with process(monkeypatch, rank, count):
            stream = block_stream(blocks_in_memory(blocks_NT), 12, at_once, 0.2, seed=3)
            for place, step in enumerate(steps):
                found[place] += [(share, *drawn) for share, drawn in stream(step)]
    return found


@pytest.mark.parametrize(("count", "at_once"), [(1, 3), (2, None), (2, 3), (3, 2), (4, 3), (12, None)])
def test_every_number_of_processes_sees_the_same_blocks_in_the_same_order(
    monkeypatch: pytest.MonkeyPatch, count: int, at_once: int | None
) -> None:
    alone = drawn(monkeypatch, 1, None, range(1, 9))
    divided = drawn(monkeypatch, count, at_once, range(1, 9))
    for (whole,), parts in zip(alone, divided, strict=True):
        assert torch.equal(torch.cat([tokens_BT for _, tokens_BT, _ in parts]), whole[1])
        assert sum(share for share, _, _ in parts) == pytest.approx(1)
        firsts = [first for _, _, first in parts]
        assert firsts == list(range(whole[2], whole[2] + 12, 12 // len(parts)))


def test_another_number_of_processes_goes_on_where_one_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = drawn(monkeypatch, 1, None, range(1, 9))
    parts = drawn(monkeypatch, 3, 2, range(1, 4)) + drawn(monkeypatch, 2, None, range(4, 9))
    seen = [torch.cat([tokens_BT for _, tokens_BT, _ in step]) for step in parts]
    assert torch.equal(torch.cat(seen), torch.cat([step[0][1] for step in alone]))


@pytest.mark.parametrize(("count", "at_once"), [(5, None), (2, 4), (12, 2)])
def test_a_batch_that_cannot_be_divided_is_refused_by_every_process(
    monkeypatch: pytest.MonkeyPatch, count: int, at_once: int | None
) -> None:
    for rank in range(count):
        with (
            process(monkeypatch, rank, count),
            pytest.raises(RecipeError, match=rf"batch_blocks 12 .* over {count} processes"),
        ):
            block_stream(blocks_in_memory(torch.zeros(BLOCKS, TOKENS, dtype=torch.int64)), 12, at_once, 0.2, seed=3)


@pytest.mark.parametrize(
    ("count", "at_once"), [(1, 3), (2, None), (2, 2), (2, 3), (3, 2), (4, 1), (7, None), (40, None)]
)
def test_examples_are_divided_so_that_each_counts_once(
    monkeypatch: pytest.MonkeyPatch, count: int, at_once: int | None
) -> None:
    """An epoch of 23 ends with a batch of 3; every process has as many micro-batches, or they would wait for ever."""
    steps = range(1, 7)
    alone = [task_stream(Rows(), 10, None, seed=1)(step)[0][1] for step in steps]
    for step, whole in zip(steps, alone, strict=True):
        weight, numbers = dict.fromkeys(whole, 0.0), set()
        for rank in range(count):
            with process(monkeypatch, rank, count):
                parts = task_stream(Rows(), 10, at_once, seed=1)(step)
            numbers.add(len(parts))
            for share, rows in parts:
                assert rows
                for row in rows:
                    weight[row] += share * (row % 5 + 1) / sum(other % 5 + 1 for other in rows)
        assert len(numbers) == 1
        total = sum(row % 5 + 1 for row in whole)
        assert weight == pytest.approx({row: (row % 5 + 1) / total for row in whole})

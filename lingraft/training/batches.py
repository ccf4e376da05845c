"""Micro-batches of a training step, which follow from the step's number alone.

A global batch is divided over the processes, and each part into micro-batches; every micro-batch comes with its share
of the mean over the global batch, so that the gradient is the same however the batch is divided.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lingraft import ranks
from lingraft.config.training import Training, blocks_per_process
from lingraft.data.masking import count_predicted
from lingraft.data.rng import ShuffledIndices, make_generator
from lingraft.data.shards import Blocks
from lingraft.errors import RecipeError
from lingraft.tasks.task_kind import Prepared, batch_sizes, lengths

_GROUPED_STEPS = 16
"""Steps whose rows are sorted by length among themselves: of 512 NLI pairs, 32 at once, 3% are padding, not 40%."""


class MaskedLmBatch(NamedTuple):
    """Blocks for masked language modelling."""

    tokens_BT: Tensor
    first: int
    """Place of the first block in the order of the whole training, which decides how the blocks are masked."""


def block_stream(
    blocks: Blocks, batch_blocks: int, at_once: int | None, mask_rate: float, seed: int
) -> Callable[[int], list[tuple[float, MaskedLmBatch]]]:
    """Return the stream of shuffled blocks; every epoch has each block once, in an order of its own.

    `at_once` blocks make a micro-batch, all of a process's if None; it weighs by the tokens predicted at `mask_rate`.

    Raises:
        RecipeError: batch and micro-batch cannot be divided over the processes.
    """
    own = blocks_per_process(batch_blocks, at_once, ranks.world_size())
    if own is None:
        raise RecipeError(
            f"batch_blocks {batch_blocks} in micro-batches of {at_once or 'any size'} cannot be divided over "
            f"{ranks.world_size()} processes. Choose a batch that is a multiple of micro_batch_blocks x processes."
        )
    order, size = ShuffledIndices(len(blocks), seed), at_once or own

    def micro_batches(step: int) -> list[tuple[float, MaskedLmBatch]]:
        first = (step - 1) * batch_blocks
        total = count_predicted(mask_rate, blocks.block_tokens, first, batch_blocks) or 1  # blocks may be that short
        starts = range(first + ranks.rank() * own, first + (ranks.rank() + 1) * own, size)
        return [
            (
                count_predicted(mask_rate, blocks.block_tokens, start, size) / total,
                MaskedLmBatch(blocks.take(order.rows(start, size)), start),
            )
            for start in starts
        ]

    return micro_batches


def masked_lm_stream(blocks: Blocks, settings: Training) -> Callable[[int], list[tuple[float, MaskedLmBatch]]]:
    """Return the stream of shuffled blocks of a training's settings; see `block_stream`."""
    return block_stream(blocks, settings.batch_blocks, settings.micro_batch_blocks, settings.mask_rate, settings.seed)


def task_stream(
    data: Prepared, batch_examples: int, seed: int, group_by_length: bool = False
) -> Callable[[int], list[tuple[float, Any]]]:
    """Return the stream of shuffled examples; each epoch has a new order, and one batch that may be smaller."""
    rows_of = _rows_of(data, batch_examples, seed, _GROUPED_STEPS if group_by_length else 1)

    def own_batch(step: int) -> list[tuple[float, Any]]:
        chosen = rows_of(step)
        return [_own_share(data, chosen, data.targets(chosen))]

    return own_batch


class TokenBatches:
    """Batches of rows of like length that hold at most so many tokens, padding included; a longer row stands alone.

    Every epoch has each row once. Its batches come in an order of its own, and rows of equal length are shuffled.
    """

    def __init__(self, data: Prepared, batch_tokens: int, seed: int) -> None:
        """Divide rows into batches.

        Args:
            data: rows, whose loss is a mean over targets.
            batch_tokens: most tokens of a batch.
            seed: seed of all epochs.
        """
        self._data, self._order, self._seed = data, ShuffledIndices(len(data), seed), seed
        self._lengths_N = lengths(data)
        self._batches = functools.lru_cache(maxsize=1)(self._shuffle)
        self.sizes = batch_sizes(self._lengths_N, batch_tokens)
        """Rows of each batch, the shortest rows first: the same in every epoch."""
        self._mean_targets = data.targets(torch.arange(len(data))) / len(self.sizes)

    def __call__(self, step: int) -> list[tuple[float, Any]]:
        """Return the micro-batch of a step: it weighs by its targets, beside those of the mean batch of an epoch."""
        return [_own_share(self._data, self._rows(step), self._mean_targets)]

    def rows_until(self, step: int) -> Tensor:
        """Return the numbers of the rows that steps 1 to this one have, each once, in ascending order."""
        steps = range(1, min(step, len(self.sizes)) + 1)
        return torch.cat([self._rows(each) for each in steps]).sort().values

    def _rows(self, step: int) -> Tensor:
        epoch, place = divmod(step - 1, len(self.sizes))
        return self._batches(epoch)[place]

    def _shuffle(self, epoch: int) -> list[Tensor]:
        drawn = self._order.rows(epoch * len(self._data), len(self._data))
        batches = drawn[self._lengths_N[drawn].argsort(stable=True)].split(self.sizes)
        shuffled = torch.randperm(len(batches), generator=make_generator("batches", self._seed, epoch))
        return [batches[number] for number in shuffled.tolist()]


def _own_share(data: Prepared, chosen: Tensor, whole: float) -> tuple[float, Any]:
    """Return this process's part of the rows chosen, with its part of `whole` targets."""
    parts = chosen.split(math.ceil(len(chosen) / ranks.world_size()))
    if ranks.rank() >= len(parts):  # gradients are averaged over all processes, and this one's batch counts for nothing
        return 0.0, data.batch(chosen[:1])
    return data.targets(parts[ranks.rank()]) / whole, data.batch(parts[ranks.rank()])


def _rows_of(data: Prepared, batch_examples: int, seed: int, grouped_steps: int) -> Callable[[int], Tensor]:
    """Return the row numbers of a step. The rows of grouped steps are sorted by length, and their batches shuffled."""
    count, order = len(data), ShuffledIndices(len(data), seed)
    steps_an_epoch = math.ceil(count / batch_examples)
    lengths_N = lengths(data) if grouped_steps > 1 else None

    def rows(step: int) -> Tensor:
        epoch, place = divmod(step - 1, steps_an_epoch)
        first = (place - place % grouped_steps) * batch_examples
        drawn = order.rows(epoch * count + first, min(grouped_steps * batch_examples, count - first))
        if lengths_N is None:
            return drawn
        batches = drawn[lengths_N[drawn].argsort(stable=True)].split(batch_examples)
        shuffled = torch.randperm(len(batches), generator=make_generator("batches", seed, epoch, first))
        return batches[int(shuffled[place % grouped_steps])]

    return rows


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a batch of the same structure whose tensors lie on a device; copies to a GPU are not waited for."""
    if isinstance(batch, Tensor):
        return (batch.pin_memory() if device.type == "cuda" else batch).to(device, non_blocking=True)
    if isinstance(batch, tuple):
        parts: Any = [to_device(part, device) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    return batch


def steps_for_epochs(data: Prepared, batch_examples: int, epochs: float) -> int:
    """Return the steps in which every row is seen `epochs` times, at least one."""
    return max(1, round(epochs * math.ceil(len(data) / batch_examples)))

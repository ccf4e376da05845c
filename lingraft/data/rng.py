"""Counter-based random numbers: every number is a pure function of a seed and of its purpose.

They do not depend on how a batch is divided over micro-batches, processes and devices. An interrupted training needs
only its step to resume with the same numbers.
"""

import functools
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

RANDOM_BITS = 53
"""Bits of a random number: float64 holds numbers in [0, 2**53) exactly."""
_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""SplitMix64's increment and multipliers (Steele, Lea and Flood 2014, figure 15)."""


def derive_seed(*parts: object) -> int:
    """Return a seed of 63 bits from the `repr` of some objects."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1


def make_generator(*parts: object) -> torch.Generator:
    """Return a CPU generator that is seeded with `derive_seed`."""
    return torch.Generator().manual_seed(derive_seed(*parts))


def counter_random(seed: int, first: int, rows: int, columns: int, device: torch.device) -> Tensor:
    """Return uniform integers (rows, columns) in [0, 2**53), int64: rows `first`, `first` + 1, ... of a seed.

    Args:
        seed: 63 bits, from `derive_seed`.
        first: number of the first row.
        rows: number of rows; a row has the same numbers whichever rows are computed with it.
        columns: length of every row; rows of another length have other numbers.
        device: device to compute on; the numbers are the same on all.
    """
    start = _signed((seed + first * columns * _GAMMA) & _MASK)
    mixed = torch.arange(rows * columns, device=device) * _signed(_GAMMA) + start
    mixed = (mixed ^ _shifted(mixed, 30)) * _signed(_FIRST)
    mixed = (mixed ^ _shifted(mixed, 27)) * _signed(_SECOND)
    return _shifted(mixed ^ _shifted(mixed, 31), 64 - RANDOM_BITS).view(rows, columns)


class ShuffledIndices:
    """Endless sequence of row numbers; every epoch has each row once, in its own order.

    A position is one number, however the rows are divided over processes, so training may resume anywhere.
    """

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self._shuffled = functools.lru_cache(maxsize=2)(self._shuffle)

    def rows(self, first: int, count: int) -> Tensor:
        """Return the row numbers (count) at the positions `first`, `first` + 1, ... of the sequence, int64."""
        found = [torch.empty(0, dtype=torch.int64)]
        while count:
            epoch, place = divmod(first, self.count)
            found.append(self._shuffled(epoch)[place : place + count])
            first, count = first + len(found[-1]), count - len(found[-1])
        return torch.cat(found)

    def _shuffle(self, epoch: int) -> Tensor:
        return torch.randperm(self.count, generator=make_generator("order", self.seed, epoch, 0))


_MASK = (1 << 64) - 1


def _signed(number: int) -> int:
    """Return the int64 of the same bits; its products wrap around like those of unsigned numbers."""
    return number - (1 << 64) if number >> 63 else number


def _shifted(numbers: Tensor, bits: int) -> Tensor:
    """Shift to the right without copying the sign."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Compute on one thread, as the last bits of a sum depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

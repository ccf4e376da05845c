"""Randomness without a state: every number is a pure function of a seed and of what it is for.

So it does not depend on how a batch is divided over micro-batches, processes and devices, and an interrupted training
needs nothing but its step to go on with the very same numbers.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

RANDOM_BITS = 53
"""Numbers lie in [0, 2**53), so that float64 holds them exactly."""
_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""SplitMix64's increment and multipliers (Steele, Lea and Flood 2014, figure 15)."""


def derive_seed(*parts: object) -> int:
    """A seed from anything that can be written down, 63 bits."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1


def make_generator(*parts: object) -> torch.Generator:
    """A generator on the CPU, seeded by anything that can be written down."""
    return torch.Generator().manual_seed(derive_seed(*parts))


def counter_random(seed: int, first: int, rows: int, columns: int, device: torch.device) -> Tensor:
    """Uniform whole numbers (rows, columns) in [0, 2**53), int64: those of rows `first`, `first` + 1, ... of a seed.

    Args:
        seed: 63 bits, as `derive_seed` gives.
        first: number of the first row.
        rows: how many rows; each has the same numbers whichever rows are asked for with it.
        columns: of every row; rows of another number of columns are other rows.
        device: where to compute; the numbers are the same everywhere.
    """
    start = _signed((seed + first * columns * _GAMMA) & _MASK)
    mixed = torch.arange(rows * columns, device=device) * _signed(_GAMMA) + start
    mixed = (mixed ^ _shifted(mixed, 30)) * _signed(_FIRST)
    mixed = (mixed ^ _shifted(mixed, 27)) * _signed(_SECOND)
    return _shifted(mixed ^ _shifted(mixed, 31), 64 - RANDOM_BITS).view(rows, columns)


_MASK = (1 << 64) - 1


def _signed(number: int) -> int:
    """The int64 of the same bits; its products wrap around as those of unsigned numbers do."""
    return number - (1 << 64) if number >> 63 else number


def _shifted(numbers: Tensor, bits: int) -> Tensor:
    """Shift to the right without copying the sign."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Compute on one thread: the last bits of a sum depend on how many add it up, and results of a seed must not."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

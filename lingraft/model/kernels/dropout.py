"""Dropout masks from 16 random bits an element, several times as fast as `bernoulli_` on a CPU."""

import torch
from torch import Tensor

_LEVELS = 2**16
_A_WORD = 4
"""Draws of 16 bits in a random number of 64."""


def keep_mask(hidden: Tensor, share: float, generator: torch.Generator | None = None) -> Tensor:
    """1 where an element stays, else 0, in the shape and format of `hidden`.

    Args:
        hidden: what will be multiplied.
        share: of elements that are dropped, taken to the nearest 2**-16.
        generator: on the CPU; torch's global one if absent.
    """
    count = hidden.numel()
    words = torch.empty(-(-count // _A_WORD), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    draws = words.view(torch.int16)[:count].view(hidden.shape)
    return torch.ge(draws, round(share * _LEVELS) - _LEVELS // 2, out=torch.empty_like(draws, dtype=hidden.dtype))


def keep_scale(share: float) -> float:
    """What kept elements are multiplied by, so that the mean stays."""
    return _LEVELS / (_LEVELS - round(share * _LEVELS))


def apply_dropout_(hidden: Tensor, keep: Tensor, share: float) -> Tensor:
    """Drop elements in place, and scale the others; the same to values and to gradients."""
    return hidden.mul_(keep).mul_(keep_scale(share))

"""Parts of the kernels for training on a CPU: cached casts, cheap dropout masks, and memory that the process keeps."""

import ctypes
import sys

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

_FROZEN = WeakIdKeyDictionary()
"""Version and copy of each frozen weight that was cast, until the weight is gone."""
_LEVELS = 2**16
_DRAWS_A_WORD = 4
"""Draws of 16 bits in a random number of 64."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
"""Numbers of the parameters of glibc's mallopt."""
_TOP_PAD_BYTES = 2**28


def trains_by_kernel(hidden: Tensor) -> bool:
    """Whether the layers' own kernels compute these hidden states: in training, on a CPU.

    While the compiler or an exporter traces, plain operations are needed.
    """
    return hidden.is_cpu and torch.is_grad_enabled() and not torch.compiler.is_compiling()


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """Return the number format of matrix products: autocast's, else the tensor's own."""
    kind = tensor.device.type
    is_cast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if is_cast else tensor.dtype


def cast_weight(weight: Tensor, number_format: torch.dtype) -> Tensor:
    """Cast a weight, without autograd; a frozen one is cast once, and again only if it changes."""
    if weight.dtype == number_format:
        return weight.detach()
    if weight.requires_grad:
        return weight.detach().to(number_format)
    state = weight._version, weight.data_ptr(), number_format
    known = _FROZEN.get(weight)
    if known is None or known[0] != state:
        known = _FROZEN[weight] = state, weight.to(number_format)
    copy: Tensor = known[1]
    return copy


def keep_mask(hidden: Tensor, share: float, generator: torch.Generator | None = None) -> Tensor:
    """Draw a dropout mask from 16 random bits an element, several times as fast as `bernoulli_`.

    `share` of elements are dropped, taken to the nearest 2**-16.

    Returns:
        1 where an element stays, else 0, in the shape and format of `hidden`.
    """
    count = hidden.numel()
    words = torch.empty(-(-count // _DRAWS_A_WORD), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    draws = words.view(torch.int16)[:count].view(hidden.shape)
    return torch.ge(draws, round(share * _LEVELS) - _LEVELS // 2, out=torch.empty_like(draws, dtype=hidden.dtype))


def keep_scale(share: float) -> float:
    """Return the factor of kept elements with which the mean stays."""
    return _LEVELS / (_LEVELS - round(share * _LEVELS))


def apply_dropout_(hidden: Tensor, keep: Tensor, share: float) -> Tensor:
    """Drop elements in place, and scale the others; the same to values and to gradients."""
    return hidden.mul_(keep).mul_(keep_scale(share))


def reuse_freed_memory() -> bool:
    """Keep freed memory in the process, so that training on a CPU does not fetch it from the system in every step.

    glibc gives tensors of 32 MiB and more back as soon as they are freed, and the system fills the next ones with zeros
    page by page: a third of the processor time of a training step. The process holds its peak until it ends.

    Returns:
        Whether the C library is one that can be told so.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = {_MMAP_MAX: 0, _TRIM_THRESHOLD: -1, _TOP_PAD: _TOP_PAD_BYTES}
    return all(mallopt(name, value) for name, value in settings.items())

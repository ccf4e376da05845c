"""Weights in the number format of a forward pass."""

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

_FROZEN = WeakIdKeyDictionary()
"""Of each frozen weight: its version and the copy made of it. Gone when the weight is."""


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """The number format in which matrix products run: autocast's, else the tensor's own."""
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else tensor.dtype


def cast_weight(weight: Tensor, number_format: torch.dtype) -> Tensor:
    """A weight in another format; the copy of a frozen one is made once, and again only if the weight changes."""
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

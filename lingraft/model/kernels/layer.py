"""A layer in training on a CPU: forward and backward pass as one autograd function, whatever its kind.

Legend: N = B x T tokens, D width.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lingraft.model.kernels.attention import AttentionSettings, SavedAttention
from lingraft.model.kernels.cpu import compute_dtype
from lingraft.model.kernels.operations import LayerSettings, cast_weights


class LayerKernel(NamedTuple):
    """Passes of a kind of layer, and what they hand to each other."""

    weights: type[Any]
    """Named tuple of a layer's weights."""
    saved: type[Any]
    """Named tuple of the tensors that the backward pass reads, beside those of attention."""
    of_weights: tuple[str, ...]
    """Names of those that only gradients of weights need: a frozen layer does not keep them."""
    forward: Callable[..., tuple[Tensor, SavedAttention, Any]]
    """Function of settings, attention, hidden states (B, T, D), weights and number format: hidden states (N, D)."""
    backward: Callable[..., tuple[Tensor | None, ...]]
    """Function that gives the gradients of the hidden states that entered and of the weights, where they are wanted."""


def training_layer(
    kernel: LayerKernel, settings: LayerSettings, attention: AttentionSettings, hidden_BTD: Tensor, weights: Any
) -> Tensor:
    """Hidden states (B, T, D) after a layer; weights, of the kernel's kind, get gradients where they need them."""
    found_BTD: Tensor = _FusedLayer.apply(kernel, settings, attention, hidden_BTD, *weights)  # type: ignore[no-untyped-call]
    return found_BTD


class _FusedLayer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        kernel: LayerKernel,
        settings: LayerSettings,
        attention: AttentionSettings,
        hidden_BTD: Tensor,
        *parameters: Tensor | None,
    ) -> Tensor:
        number_format = compute_dtype(hidden_BTD)
        weights = cast_weights(kernel.weights(*parameters), number_format)
        with torch.autocast(hidden_BTD.device.type, enabled=False):
            out_ND, of_attention, saved = kernel.forward(settings, attention, hidden_BTD, weights, number_format)
        if not any(ctx.needs_input_grad[4:]):
            of_attention = of_attention.of_frozen(attention)
            saved = saved._replace(**dict.fromkeys(kernel.of_weights))
        ctx.kernel, ctx.settings, ctx.attention = kernel, settings, attention
        ctx.save_for_backward(*of_attention, *saved, *weights)
        return out_ND.view_as(hidden_BTD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above_BTD: Tensor) -> tuple[Tensor | None, ...]:
        kernel = ctx.kernel
        # Looked at once only: activation checkpointing recomputes them at each look.
        tensors = iter(ctx.saved_tensors)
        found = kernel.backward(
            settings=ctx.settings,
            attention=ctx.attention,
            above_BTD=above_BTD,
            of_attention=SavedAttention(*islice(tensors, len(SavedAttention._fields))),
            saved=kernel.saved(*islice(tensors, len(kernel.saved._fields))),
            weights=kernel.weights(*tensors),
            wanted=ctx.needs_input_grad[3:],
        )
        return None, None, None, *found

"""A post-norm layer in training on a CPU: its forward and its backward pass.

Legend: N = B x T tokens, D width, F feed-forward, O outputs and I inputs of a matrix.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lingraft.model.kernels.attention import (
    AttentionSettings,
    SavedAttention,
    SelfAttentionWeights,
    self_attention,
    self_attention_backward,
)
from lingraft.model.kernels.layer import LayerKernel
from lingraft.model.kernels.operations import (
    LayerSettings,
    dropout,
    dropout_backward,
    norm,
    norm_backward,
    product,
    product_backward,
)


class PostNormWeights(NamedTuple):
    """Weights of a layer, in the order in which the data meets them."""

    qkv_OI: Tensor
    qkv_O: Tensor
    attention_out_OI: Tensor
    attention_out_O: Tensor
    attention_norm_scale_D: Tensor
    attention_norm_shift_D: Tensor
    up_OI: Tensor
    up_O: Tensor
    down_OI: Tensor
    down_O: Tensor
    output_norm_scale_D: Tensor
    output_norm_shift_D: Tensor

    @property
    def of_attention(self) -> SelfAttentionWeights:
        """Weights of self-attention."""
        return SelfAttentionWeights(self.qkv_OI, self.qkv_O, self.attention_out_OI, self.attention_out_O)


class _SavedPostNorm(NamedTuple):
    """Tensors that the backward pass reads; those that only gradients of weights need are absent in a frozen layer."""

    keep_mixed_ND: Tensor | None
    first_ND: Tensor
    first_mean_N1: Tensor
    first_rstd_N1: Tensor
    between_ND: Tensor | None
    up_NF: Tensor
    activated_NF: Tensor | None
    keep_down_ND: Tensor | None
    second_ND: Tensor
    second_mean_N1: Tensor
    second_rstd_N1: Tensor


def _forward(
    settings: LayerSettings,
    attention: AttentionSettings,
    hidden_BTD: Tensor,
    weights: PostNormWeights,
    number_format: torch.dtype,
) -> tuple[Tensor, SavedAttention, _SavedPostNorm]:
    hidden_ND = hidden_BTD.flatten(0, 1)
    mixed_ND, of_attention = self_attention(
        hidden_ND.to(number_format), hidden_BTD.shape[1], weights.of_attention, attention
    )
    mixed_ND, keep_mixed_ND = dropout(mixed_ND, settings.drop)
    first_ND = hidden_ND + mixed_ND
    between_ND, first_mean_N1, first_rstd_N1 = norm(
        first_ND, weights.attention_norm_scale_D, weights.attention_norm_shift_D, settings.eps
    )
    narrow_ND = between_ND.to(number_format)
    up_NF = product(narrow_ND, weights.up_OI, weights.up_O)
    activated_NF = settings.activation.forward(up_NF)
    down_ND, keep_down_ND = dropout(product(activated_NF, weights.down_OI, weights.down_O), settings.drop)
    second_ND = between_ND + down_ND
    out_ND, second_mean_N1, second_rstd_N1 = norm(
        second_ND, weights.output_norm_scale_D, weights.output_norm_shift_D, settings.eps
    )
    saved = _SavedPostNorm(
        keep_mixed_ND=keep_mixed_ND,
        first_ND=first_ND,
        first_mean_N1=first_mean_N1,
        first_rstd_N1=first_rstd_N1,
        between_ND=narrow_ND,
        up_NF=up_NF,
        activated_NF=activated_NF,
        keep_down_ND=keep_down_ND,
        second_ND=second_ND,
        second_mean_N1=second_mean_N1,
        second_rstd_N1=second_rstd_N1,
    )
    return out_ND, of_attention, saved


def _backward(
    *,
    settings: LayerSettings,
    attention: AttentionSettings,
    above_BTD: Tensor,
    of_attention: SavedAttention,
    saved: _SavedPostNorm,
    weights: PostNormWeights,
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Gradients of the hidden states that entered and of the weights, in the order of `wanted`."""
    trained, number_format = wanted[1:], weights.qkv_OI.dtype
    to_second_ND, *to_output_norm = norm_backward(
        above_BTD.flatten(0, 1),
        saved.second_ND,
        (saved.second_mean_N1, saved.second_rstd_N1),
        (weights.output_norm_scale_D, weights.output_norm_shift_D),
        trained[10:],
    )
    to_down_ND = dropout_backward(to_second_ND, saved.keep_down_ND, settings.drop, number_format)
    to_down = product_backward(to_down_ND, saved.activated_NF, trained[8:10])
    to_up_NF = settings.activation.backward(to_down_ND @ weights.down_OI, saved.up_NF)
    to_up = product_backward(to_up_NF, saved.between_ND, trained[6:8])
    to_between_ND = to_second_ND.add_(to_up_NF @ weights.up_OI)
    to_first_ND, *to_attention_norm = norm_backward(
        to_between_ND,
        saved.first_ND,
        (saved.first_mean_N1, saved.first_rstd_N1),
        (weights.attention_norm_scale_D, weights.attention_norm_shift_D),
        trained[4:6],
    )
    to_mixed_ND = dropout_backward(to_first_ND, saved.keep_mixed_ND, settings.drop, number_format)
    to_entering_ND, to_attention = self_attention_backward(
        to_mixed_ND, weights.of_attention, of_attention, attention, trained[:4]
    )
    to_hidden_BTD = to_first_ND.add_(to_entering_ND).view_as(above_BTD) if wanted[0] else None
    return to_hidden_BTD, *to_attention, *to_attention_norm, *to_up, *to_down, *to_output_norm


POST_NORM = LayerKernel(
    weights=PostNormWeights,
    saved=_SavedPostNorm,
    of_weights=("between_ND", "activated_NF"),
    forward=_forward,
    backward=_backward,
)

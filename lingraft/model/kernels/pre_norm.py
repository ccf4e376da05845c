"""A pre-norm layer with GeGLU in training on a CPU: its forward and its backward pass.

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
from lingraft.model.kernels.cpu import apply_dropout_
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


class PreNormWeights(NamedTuple):
    """Weights of a layer, in the order in which the data meets them; biases, and the first norm, may be absent."""

    attention_norm_scale_D: Tensor | None
    attention_norm_shift_D: Tensor | None
    qkv_OI: Tensor
    qkv_O: Tensor | None
    attention_out_OI: Tensor
    attention_out_O: Tensor | None
    feedforward_norm_scale_D: Tensor
    feedforward_norm_shift_D: Tensor | None
    up_OI: Tensor
    up_O: Tensor | None
    down_OI: Tensor
    down_O: Tensor | None

    @property
    def of_attention(self) -> SelfAttentionWeights:
        """Weights of self-attention."""
        return SelfAttentionWeights(self.qkv_OI, self.qkv_O, self.attention_out_OI, self.attention_out_O)


class _SavedPreNorm(NamedTuple):
    """Tensors that the backward pass reads; those that only gradients of weights need are absent in a frozen layer.

    In a layer without a first norm, what such a norm would have saved is absent as well.
    """

    hidden_ND: Tensor | None
    mean_N1: Tensor | None
    rstd_N1: Tensor | None
    keep_mixed_ND: Tensor | None
    between_ND: Tensor
    between_mean_N1: Tensor
    between_rstd_N1: Tensor
    narrow_ND: Tensor | None
    up_N2F: Tensor
    activated_NF: Tensor
    keep_gated_NF: Tensor | None


def _forward(
    settings: LayerSettings,
    attention: AttentionSettings,
    hidden_BTD: Tensor,
    weights: PreNormWeights,
    number_format: torch.dtype,
) -> tuple[Tensor, SavedAttention, _SavedPreNorm]:
    hidden_ND = hidden_BTD.flatten(0, 1)
    entering_ND, mean_N1, rstd_N1 = hidden_ND, None, None
    if weights.attention_norm_scale_D is not None:
        entering_ND, mean_N1, rstd_N1 = norm(
            hidden_ND, weights.attention_norm_scale_D, weights.attention_norm_shift_D, settings.eps
        )
    mixed_ND, of_attention = self_attention(
        entering_ND.to(number_format), hidden_BTD.shape[1], weights.of_attention, attention
    )
    mixed_ND, keep_mixed_ND = dropout(mixed_ND, settings.drop)
    between_ND = hidden_ND + mixed_ND
    normed_ND, between_mean_N1, between_rstd_N1 = norm(
        between_ND, weights.feedforward_norm_scale_D, weights.feedforward_norm_shift_D, settings.eps
    )
    narrow_ND = normed_ND.to(number_format)
    up_N2F = product(narrow_ND, weights.up_OI, weights.up_O)
    entered_NF, gate_NF = up_N2F.chunk(2, dim=-1)
    activated_NF = settings.activation.forward(entered_NF)
    gated_NF, keep_gated_NF = dropout(activated_NF * gate_NF, settings.drop)
    out_ND = between_ND + product(gated_NF, weights.down_OI, weights.down_O)
    saved = _SavedPreNorm(
        hidden_ND=None if mean_N1 is None else hidden_ND,
        mean_N1=mean_N1,
        rstd_N1=rstd_N1,
        keep_mixed_ND=keep_mixed_ND,
        between_ND=between_ND,
        between_mean_N1=between_mean_N1,
        between_rstd_N1=between_rstd_N1,
        narrow_ND=narrow_ND,
        up_N2F=up_N2F,
        activated_NF=activated_NF,
        keep_gated_NF=keep_gated_NF,
    )
    return out_ND, of_attention, saved


def _backward(
    *,
    settings: LayerSettings,
    attention: AttentionSettings,
    above_BTD: Tensor,
    of_attention: SavedAttention,
    saved: _SavedPreNorm,
    weights: PreNormWeights,
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Gradients of the hidden states that entered and of the weights, in the order of `wanted`."""
    trained, number_format = wanted[1:], weights.qkv_OI.dtype
    above_ND = above_BTD.flatten(0, 1)
    to_up_N2F, to_down = _gated_backward(settings, above_ND.to(number_format), saved, weights, trained[10:])
    to_up = product_backward(to_up_N2F, saved.narrow_ND, trained[8:10])
    to_between_ND, *to_feedforward_norm = norm_backward(
        (to_up_N2F @ weights.up_OI).to(above_ND.dtype),
        saved.between_ND,
        (saved.between_mean_N1, saved.between_rstd_N1),
        (weights.feedforward_norm_scale_D, weights.feedforward_norm_shift_D),
        trained[6:8],
    )
    to_between_ND.add_(above_ND)
    to_mixed_ND = dropout_backward(to_between_ND, saved.keep_mixed_ND, settings.drop, number_format)
    to_entering_ND, to_attention = self_attention_backward(
        to_mixed_ND, weights.of_attention, of_attention, attention, trained[2:6]
    )
    to_attention_norm: list[Tensor | None] = [None, None]
    if weights.attention_norm_scale_D is not None:
        assert saved.hidden_ND is not None
        assert saved.mean_N1 is not None
        assert saved.rstd_N1 is not None
        to_entering_ND, *to_attention_norm = norm_backward(
            to_entering_ND.to(above_ND.dtype),
            saved.hidden_ND,
            (saved.mean_N1, saved.rstd_N1),
            (weights.attention_norm_scale_D, weights.attention_norm_shift_D),
            trained[:2],
        )
    to_hidden_BTD = to_between_ND.add_(to_entering_ND).view_as(above_BTD) if wanted[0] else None
    return to_hidden_BTD, *to_attention_norm, *to_attention, *to_feedforward_norm, *to_up, *to_down


def _gated_backward(
    settings: LayerSettings, above_ND: Tensor, saved: _SavedPreNorm, weights: PreNormWeights, trained: tuple[bool, ...]
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Gradients of what `up` found (N, 2F), and of `down`'s matrix and bias."""
    entered_NF, gate_NF = saved.up_N2F.chunk(2, dim=-1)
    gated_NF = None
    if trained[0]:
        gated_NF = saved.activated_NF * gate_NF
        if saved.keep_gated_NF is not None:
            gated_NF = apply_dropout_(gated_NF, saved.keep_gated_NF, settings.drop)
    to_down = product_backward(above_ND, gated_NF, trained)
    to_gated_NF = above_ND @ weights.down_OI
    if saved.keep_gated_NF is not None:
        to_gated_NF = apply_dropout_(to_gated_NF, saved.keep_gated_NF, settings.drop)
    to_up_N2F = torch.empty_like(saved.up_N2F)
    to_entered_NF, to_gate_NF = to_up_N2F.chunk(2, dim=-1)
    torch.mul(to_gated_NF, saved.activated_NF, out=to_gate_NF)
    to_entered_NF.copy_(settings.activation.backward(to_gated_NF.mul_(gate_NF), entered_NF))
    return to_up_N2F, to_down


PRE_NORM = LayerKernel(
    weights=PreNormWeights, saved=_SavedPreNorm, of_weights=("narrow_ND",), forward=_forward, backward=_backward
)

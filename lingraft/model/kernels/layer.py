"""A transformer layer in training on a CPU: forward and backward pass as one autograd function.

Legend: N = B x T tokens, D width, H heads, K width of a head, F feed-forward, O outputs and I inputs of a matrix.
Matrix products run in autocast's format, LayerNorms and the residual stream in float32, as under autocast. What
autograd would do besides is left out: a cast of every frozen weight in every step, float32 copies of what is multiplied
next, layouts that the attention's products undo.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lingraft.model.kernels.attention import AttentionSettings, attend, attend_backward, uses_torch_kernel
from lingraft.model.kernels.cpu import apply_dropout_, cast_weight, compute_dtype, keep_mask


class Activation(NamedTuple):
    """An activation and the gradient that it passes on."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]
    """Function of the gradient above and of the input."""


ACTIVATIONS = {
    "gelu": Activation(F.gelu, torch.ops.aten.gelu_backward),
    "gelu_tanh": Activation(
        lambda hidden: F.gelu(hidden, approximate="tanh"),
        lambda above, hidden: torch.ops.aten.gelu_backward(above, hidden, approximate="tanh"),
    ),
    "relu": Activation(F.relu, lambda above, hidden: torch.ops.aten.threshold_backward(above, hidden, 0)),
}


class LayerSettings(NamedTuple):
    """Settings of a layer beside its weights."""

    heads: int
    activation: Activation
    eps: float
    """Epsilon of the LayerNorms."""
    drop: float


class LayerWeights(NamedTuple):
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


class SavedActivations(NamedTuple):
    """Tensors that the backward pass reads; those that only gradients of weights need are absent in a frozen layer."""

    visible_B11T: Tensor | None
    entering_ND: Tensor | None
    packed_3BHTK: Tensor
    attended: Tensor | None
    """Second output of `attend`."""
    mixed_ND: Tensor | None
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


def training_layer(
    settings: LayerSettings, visible_B11T: Tensor | None, hidden_BTD: Tensor, weights: LayerWeights
) -> Tensor:
    """Hidden states (B, T, D) after a layer.

    `visible_B11T` is True at the keys that may be attended to; weights that need gradients get them.
    """
    found_BTD: Tensor = _TrainingLayer.apply(settings, visible_B11T, hidden_BTD, *weights)  # type: ignore[no-untyped-call]
    return found_BTD


class _TrainingLayer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, settings: LayerSettings, visible_B11T: Tensor | None, hidden_BTD: Tensor, *parameters: Tensor
    ) -> Tensor:
        number_format = compute_dtype(hidden_BTD)
        weights = _cast(LayerWeights(*parameters), number_format)
        seed = int(torch.randint(2**62, ())) if settings.drop else 0
        ctx.settings, ctx.attention = settings, AttentionSettings(settings.drop, seed, visible_B11T)
        with torch.autocast(hidden_BTD.device.type, enabled=False):
            out_ND, saved = _forward(settings, ctx.attention, hidden_BTD, weights, number_format)
        if not any(ctx.needs_input_grad[3:]):
            mixed_ND = saved.mixed_ND if uses_torch_kernel(saved.packed_3BHTK, ctx.attention) else None
            saved = saved._replace(entering_ND=None, mixed_ND=mixed_ND, between_ND=None, activated_NF=None)
        ctx.attention = ctx.attention._replace(visible_B11T=None)
        ctx.save_for_backward(*saved, *weights)
        return out_ND.view_as(hidden_BTD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above_BTD: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors  # once only: checkpointing computes them at the first look
        saved, weights = (
            SavedActivations(*tensors[: len(SavedActivations._fields)]),
            LayerWeights(*tensors[len(SavedActivations._fields) :]),
        )
        attention = ctx.attention._replace(visible_B11T=saved.visible_B11T)
        wanted = ctx.needs_input_grad[2:]
        found = _backward(ctx.settings, attention, above_BTD, saved, weights, wanted)
        return None, None, *found


def _cast(weights: LayerWeights, number_format: torch.dtype) -> LayerWeights:
    """LayerNorms stay as they are."""
    named = weights._asdict()
    return LayerWeights(
        **{
            name: tensor.detach() if "norm" in name else cast_weight(tensor, number_format)
            for name, tensor in named.items()
        }
    )


def _forward(
    settings: LayerSettings,
    attention: AttentionSettings,
    hidden_BTD: Tensor,
    weights: LayerWeights,
    number_format: torch.dtype,
) -> tuple[Tensor, SavedActivations]:
    hidden_ND = hidden_BTD.flatten(0, 1)
    entering_ND = hidden_ND.to(number_format)
    qkv_NO = torch.addmm(weights.qkv_O, entering_ND, weights.qkv_OI.t())
    packed_3BHTK = _split_heads(qkv_NO, hidden_BTD.shape, settings.heads)
    packed_3BHTK[0].mul_(packed_3BHTK.shape[-1] ** -0.5)
    mixed_BTHK, attended = attend(packed_3BHTK, attention)
    mixed_ND = mixed_BTHK.view_as(hidden_ND)
    added_ND, keep_mixed_ND = _dropout(
        torch.addmm(weights.attention_out_O, mixed_ND, weights.attention_out_OI.t()), settings.drop
    )
    first_ND = hidden_ND + added_ND
    between_ND, first_mean_N1, first_rstd_N1 = _norm(
        first_ND, weights.attention_norm_scale_D, weights.attention_norm_shift_D, settings.eps
    )
    narrow_ND = between_ND.to(number_format)
    up_NF = torch.addmm(weights.up_O, narrow_ND, weights.up_OI.t())
    activated_NF = settings.activation.forward(up_NF)
    down_ND, keep_down_ND = _dropout(torch.addmm(weights.down_O, activated_NF, weights.down_OI.t()), settings.drop)
    second_ND = between_ND + down_ND
    out_ND, second_mean_N1, second_rstd_N1 = _norm(
        second_ND, weights.output_norm_scale_D, weights.output_norm_shift_D, settings.eps
    )
    return out_ND, SavedActivations(
        attention.visible_B11T,
        entering_ND,
        packed_3BHTK,
        attended,
        mixed_ND,
        keep_mixed_ND,
        first_ND,
        first_mean_N1,
        first_rstd_N1,
        narrow_ND,
        up_NF,
        activated_NF,
        keep_down_ND,
        second_ND,
        second_mean_N1,
        second_rstd_N1,
    )


def _backward(
    settings: LayerSettings,
    attention: AttentionSettings,
    above_BTD: Tensor,
    saved: SavedActivations,
    weights: LayerWeights,
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Gradients of the hidden states that entered and of the weights, in the order of `wanted`."""
    trained, number_format = wanted[1:], weights.qkv_OI.dtype
    batch, tokens, _ = above_BTD.shape
    norm = weights.output_norm_scale_D, weights.output_norm_shift_D
    to_second_ND, *to_output_norm = _norm_backward(
        above_BTD.flatten(0, 1), saved.second_ND, saved.second_mean_N1, saved.second_rstd_N1, norm, trained[10:]
    )
    to_down_ND = _dropout_backward(to_second_ND, saved.keep_down_ND, settings.drop, number_format)
    to_down = _matrix_backward(to_down_ND, saved.activated_NF, trained[8:10])
    to_up_NF = settings.activation.backward(to_down_ND @ weights.down_OI, saved.up_NF)
    to_up = _matrix_backward(to_up_NF, saved.between_ND, trained[6:8])
    to_between_ND = to_second_ND.add_(to_up_NF @ weights.up_OI)
    norm = weights.attention_norm_scale_D, weights.attention_norm_shift_D
    to_first_ND, *to_attention_norm = _norm_backward(
        to_between_ND, saved.first_ND, saved.first_mean_N1, saved.first_rstd_N1, norm, trained[4:6]
    )
    to_added_ND = _dropout_backward(to_first_ND, saved.keep_mixed_ND, settings.drop, number_format)
    to_attention_out = _matrix_backward(to_added_ND, saved.mixed_ND, trained[2:4])
    to_mixed_ND = to_added_ND @ weights.attention_out_OI
    apart = batch, tokens, settings.heads, -1
    mixed_BTHK = None if saved.mixed_ND is None else saved.mixed_ND.view(apart)
    to_packed_3BHTK = attend_backward(
        to_mixed_ND.view(apart), saved.packed_3BHTK, mixed_BTHK, saved.attended, attention
    )
    to_packed_3BHTK[0].mul_(to_packed_3BHTK.shape[-1] ** -0.5)
    to_qkv_NO = to_packed_3BHTK.permute(1, 3, 0, 2, 4).reshape(batch * tokens, -1)
    to_qkv = _matrix_backward(to_qkv_NO, saved.entering_ND, trained[:2])
    to_hidden_BTD = to_first_ND.add_(to_qkv_NO @ weights.qkv_OI).view_as(above_BTD) if wanted[0] else None
    return to_hidden_BTD, *to_qkv, *to_attention_out, *to_attention_norm, *to_up, *to_down, *to_output_norm


def _split_heads(qkv_NO: Tensor, shape: torch.Size, heads: int) -> Tensor:
    """Queries, keys and values (3, B, H, T, K), each head's together, of hidden states of the shape given."""
    batch, tokens, _ = shape
    return qkv_NO.view(batch, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4).contiguous()


def _norm(hidden_ND: Tensor, scale_D: Tensor, shift_D: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    return torch.native_layer_norm(hidden_ND, [hidden_ND.shape[-1]], scale_D, shift_D, eps)


def _norm_backward(
    above_ND: Tensor,
    hidden_ND: Tensor,
    mean_N1: Tensor,
    rstd_N1: Tensor,
    norm: tuple[Tensor, Tensor],
    trained: tuple[bool, ...],
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    found: tuple[Tensor, Tensor | None, Tensor | None] = torch.ops.aten.native_layer_norm_backward(
        above_ND, hidden_ND, [hidden_ND.shape[-1]], mean_N1, rstd_N1, *norm, [True, *trained]
    )
    return found


def _dropout(hidden_ND: Tensor, share: float) -> tuple[Tensor, Tensor | None]:
    if not share:
        return hidden_ND, None
    keep_ND = keep_mask(hidden_ND, share)
    return apply_dropout_(hidden_ND, keep_ND, share), keep_ND


def _dropout_backward(above_ND: Tensor, keep_ND: Tensor | None, share: float, number_format: torch.dtype) -> Tensor:
    """The gradient below a dropout, in the format of matrix products; the one above it stays as it is."""
    if keep_ND is None:
        return above_ND.to(number_format)
    return apply_dropout_(above_ND.to(number_format, copy=True), keep_ND, share)


def _matrix_backward(
    above_NO: Tensor, entered_NI: Tensor | None, trained: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of a matrix (O, I) and its bias (O), where they train; autograd casts them as the weights are."""
    matrix, bias = trained
    return (
        matrix_gradient(above_NO, entered_NI) if matrix and entered_NI is not None else None,
        above_NO.sum(0) if bias else None,
    )


def matrix_gradient(above_NO: Tensor, entered_NI: Tensor) -> Tensor:
    """The product (O, I) over all tokens.

    In bfloat16 the processor's product of a transposed matrix takes twice as long as a plain one: copying the narrower
    of the two beforehand costs less.
    """
    outputs, inputs = above_NO.shape[1], entered_NI.shape[1]
    if above_NO.dtype != torch.bfloat16 or outputs == inputs:
        return above_NO.t() @ entered_NI
    if outputs < inputs:
        return above_NO.t().contiguous() @ entered_NI
    return (entered_NI.t().contiguous() @ above_NO).t()

"""Operations of a layer in training on a CPU, each with its backward pass.

Legend: N = B x T tokens, D width, O outputs and I inputs of a matrix. Matrix products run in autocast's format,
LayerNorms and the residual stream in float32, as under autocast. What autograd would do besides is left out: a cast of
every frozen weight in every step, and float32 copies of what is multiplied next.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from lingraft.model.kernels.cpu import apply_dropout_, cast_weight, keep_mask

_Weights = TypeVar("_Weights", bound=NamedTuple)


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
    """Settings of a layer beside its weights and its attention."""

    activation: Activation
    eps: float
    """Epsilon of the LayerNorms."""
    drop: float


def cast_weights(weights: _Weights, number_format: torch.dtype) -> _Weights:
    """Weights for matrix products, without autograd; LayerNorms stay as they are."""
    cast = {
        name: weight if weight is None else weight.detach() if "norm" in name else cast_weight(weight, number_format)
        for name, weight in weights._asdict().items()
    }
    return weights._replace(**cast)


def product(entering_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """The product (N, O) with a matrix, its bias added, if there is one."""
    if bias_O is None:
        return entering_NI @ weight_OI.t()
    return torch.addmm(bias_O, entering_NI, weight_OI.t())


def product_backward(
    above_NO: Tensor, entered_NI: Tensor | None, trained: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of a matrix (O, I) and its bias (O), where they train; autograd casts them as the weights are."""
    matrix, bias = trained
    to_matrix_OI = None
    if matrix:
        assert entered_NI is not None, "what entered a trained matrix is saved"
        to_matrix_OI = matrix_gradient(above_NO, entered_NI)
    return to_matrix_OI, above_NO.sum(0) if bias else None


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


def norm(hidden_ND: Tensor, scale_D: Tensor, shift_D: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """LayerNorm of the hidden states (N, D), with their means and reciprocal deviations (N, 1)."""
    return torch.native_layer_norm(hidden_ND, [hidden_ND.shape[-1]], scale_D, shift_D, eps)


def norm_backward(
    above_ND: Tensor,
    hidden_ND: Tensor,
    statistics: tuple[Tensor, Tensor],
    weights: tuple[Tensor, Tensor | None],
    trained: tuple[bool, ...],
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Gradients of the hidden states, which `norm` was given, and of its scale and shift, where they train."""
    found: tuple[Tensor, Tensor | None, Tensor | None] = torch.ops.aten.native_layer_norm_backward(
        above_ND, hidden_ND, [hidden_ND.shape[-1]], *statistics, *weights, [True, *trained]
    )
    return found


def dropout(hidden: Tensor, share: float) -> tuple[Tensor, Tensor | None]:
    """Drop a share of the hidden states, in place; return them with the mask of those kept, if any is dropped."""
    if not share:
        return hidden, None
    keep = keep_mask(hidden, share)
    return apply_dropout_(hidden, keep, share), keep


def dropout_backward(above: Tensor, keep: Tensor | None, share: float, number_format: torch.dtype) -> Tensor:
    """The gradient below a dropout, in the format of matrix products; the one above it stays as it is."""
    if keep is None:
        return above.to(number_format)
    return apply_dropout_(above.to(number_format, copy=True), keep, share)

"""Cross-entropy of a tied output projection, without float32 copies of its logits.

Legend: M masked tokens, D width, V vocabulary. The logits are kept in the format of matrix products alone, and turn
into their own gradient a few rows at a time.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lingraft.model.kernels.cpu import cast_weight, compute_dtype

_WIDE_BYTES = {"cpu": 2**22, "cuda": 2**29}
"""Bytes of float32 logits at a time; on a CPU they stay in its cache."""
_TABLE_ROWS = 12_500


def summed_cross_entropy(
    features_MD: Tensor, table_VD: Tensor, bias_V: Tensor, targets_M: Tensor, ignored: int
) -> Tensor:
    """The sum over all targets but `ignored`, a float32 scalar."""
    found: Tensor = _SummedCrossEntropy.apply(features_MD, table_VD, bias_V, targets_M, ignored)  # type: ignore[no-untyped-call]
    return found


class _SummedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features_MD: Tensor, table_VD: Tensor, bias_V: Tensor, targets_M: Tensor, ignored: int
    ) -> Tensor:
        number_format = compute_dtype(features_MD)
        narrow_MD = features_MD.to(number_format)
        narrow_VD = cast_weight(table_VD, number_format)
        with torch.autocast(features_MD.device.type, enabled=False):
            logits_MV = torch.addmm(cast_weight(bias_V, number_format), narrow_MD, narrow_VD.t())
            counted_M = targets_M != ignored
            total = _into_gradient_(logits_MV, targets_M.where(counted_M, 0), counted_M)
        ctx.save_for_backward(logits_MV, narrow_MD, narrow_VD)
        ctx.formats = features_MD.dtype, table_VD.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        gradient_MV, narrow_MD, narrow_VD = ctx.saved_tensors
        of_features, of_table = ctx.formats
        wanted_features, wanted_table, wanted_bias = ctx.needs_input_grad[:3]
        return (
            (gradient_MV @ narrow_VD).to(of_features).mul_(above) if wanted_features else None,
            _table_gradient(gradient_MV, narrow_MD, above, of_table) if wanted_table else None,
            gradient_MV.sum(0).to(of_table).mul_(above) if wanted_bias else None,
            None,
            None,
        )


def _into_gradient_(logits_MV: Tensor, targets_M: Tensor, counted_M: Tensor) -> Tensor:
    """Replace logits by the gradient of their summed cross-entropy, which is returned."""
    rows = max(1, _WIDE_BYTES[logits_MV.device.type] // (4 * logits_MV.shape[1]))
    total = torch.zeros((), device=logits_MV.device)
    for narrow_mV, targets_m, counted_m in zip(
        logits_MV.split(rows), targets_M.split(rows), counted_M.split(rows), strict=True
    ):
        wide_mV, targets_m1, counted_m1 = narrow_mV.float(), targets_m[:, None], counted_m[:, None].float()
        share_mV = torch.softmax(wide_mV, -1)
        # Cheaper than logsumexp, and as exact: the largest share is never below 1 / V.
        normaliser_m1 = wide_mV.amax(-1, keepdim=True) - share_mV.amax(-1, keepdim=True).log()
        total += ((normaliser_m1 - wide_mV.gather(-1, targets_m1)) * counted_m1).sum()
        share_mV.scatter_add_(-1, targets_m1, torch.full_like(normaliser_m1, -1.0))
        narrow_mV.copy_(share_mV.mul_(counted_m1))
    return total


def _table_gradient(gradient_MV: Tensor, narrow_MD: Tensor, above: Tensor, number_format: torch.dtype) -> Tensor:
    """Gradient (V, D) of the table, in its own format, some rows at a time, so that no narrow copy of all is made."""
    found_VD = gradient_MV.new_empty(gradient_MV.shape[1], narrow_MD.shape[1], dtype=number_format)
    for narrow_Mv, found_vD in zip(gradient_MV.split(_TABLE_ROWS, 1), found_VD.split(_TABLE_ROWS), strict=True):
        found_vD.copy_(_transposed(narrow_Mv) @ narrow_MD).mul_(above)
    return found_VD


def _transposed(narrow_Mv: Tensor) -> Tensor:
    """Transpose, with a copy in bfloat16: a CPU multiplies plain matrices twice as fast as transposed ones."""
    return narrow_Mv.t().contiguous() if narrow_Mv.dtype == torch.bfloat16 else narrow_Mv.t()

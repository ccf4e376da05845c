"""Cross-entropy of a tied output projection, without float32 copies of its logits.

Legend: M masked tokens, D width, V vocabulary, F frozen rows behind the table's. The logits are kept in the format of
matrix products alone, and turn into their own gradient a few rows at a time.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lingraft.model.kernels.compiled import compiled
from lingraft.model.kernels.cpu import cast_weight, compute_dtype

_WIDE_BYTES, _CACHED_BYTES = 2**29, 2**22
"""Bytes of float32 logits at a time; on a CPU they stay in its cache."""
_TABLE_ROWS = 12_500
"""Rows of the table's gradient at a time, on a CPU; a GPU multiplies all at once at a higher rate."""


FrozenRows = tuple[Tensor, Tensor]
"""Rows (F, D) and biases (F) that get no gradient."""


def summed_cross_entropy(
    features_MD: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    targets_M: Tensor,
    ignored: int,
    fused: bool = False,
    frozen: FrozenRows | None = None,
) -> Tensor:
    """The sum over all targets but `ignored`, a float32 scalar; `frozen` rows follow those of the table.

    With `fused`, Inductor compiles what turns logits into their gradient: it reads them three times and writes them
    once, where torch's operations one by one pass over float32 copies of them.
    """
    found: Tensor = _SummedCrossEntropy.apply(  # type: ignore[no-untyped-call]  # takes no keywords
        features_MD, table_VD, bias_V, targets_M, ignored, fused, frozen
    )
    return found


class _SummedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features_MD: Tensor,
        table_VD: Tensor,
        bias_V: Tensor,
        targets_M: Tensor,
        ignored: int,
        fused: bool,
        frozen: FrozenRows | None,
    ) -> Tensor:
        ctx.trained = len(table_VD)
        if frozen:
            table_VD, bias_V = torch.cat([table_VD.detach(), frozen[0]]), torch.cat([bias_V.detach(), frozen[1]])
        number_format = compute_dtype(features_MD)
        narrow_MD = features_MD.to(number_format)
        narrow_VD = cast_weight(table_VD, number_format)
        logits_MV = torch.addmm(cast_weight(bias_V, number_format), narrow_MD, narrow_VD.t())
        counted_M = targets_M != ignored
        total = _into_gradient_(logits_MV, targets_M.where(counted_M, 0), counted_M, fused)
        ctx.save_for_backward(logits_MV, narrow_MD, narrow_VD)
        ctx.formats = features_MD.dtype, table_VD.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        gradient_MV, narrow_MD, narrow_VD = ctx.saved_tensors
        of_features, of_table = ctx.formats
        wanted_features, wanted_table, wanted_bias = ctx.needs_input_grad[:3]
        trained_MV = gradient_MV[:, : ctx.trained]
        return (
            (gradient_MV @ narrow_VD).to(of_features).mul_(above) if wanted_features else None,
            _table_gradient(trained_MV, narrow_MD, above, of_table) if wanted_table else None,
            trained_MV.sum(0).to(of_table).mul_(above) if wanted_bias else None,
            *[None] * 4,
        )


def _into_gradient_(logits_MV: Tensor, targets_M: Tensor, counted_M: Tensor, fused: bool) -> Tensor:
    """Replace logits by the gradient of their summed cross-entropy, which is returned."""
    rows = max(1, (_CACHED_BYTES if logits_MV.is_cpu else _WIDE_BYTES) // (4 * logits_MV.shape[1]))
    replace_ = compiled(_fused_rows_into_gradient_) if fused else _rows_into_gradient_
    total = torch.zeros((), device=logits_MV.device)
    for narrow_mV, targets_m, counted_m in zip(
        logits_MV.split(rows), targets_M.split(rows), counted_M.split(rows), strict=True
    ):
        total += replace_(narrow_mV, targets_m[:, None], counted_m[:, None].float())
    return total


def _rows_into_gradient_(narrow_mV: Tensor, targets_m1: Tensor, counted_m1: Tensor) -> Tensor:
    wide_mV = narrow_mV.float()
    share_mV = torch.softmax(wide_mV, -1)
    # Cheaper than logsumexp, and as exact: the largest share is never below 1 / V.
    normaliser_m1 = wide_mV.amax(-1, keepdim=True) - share_mV.amax(-1, keepdim=True).log()
    total = ((normaliser_m1 - wide_mV.gather(-1, targets_m1)) * counted_m1).sum()
    share_mV.scatter_add_(-1, targets_m1, torch.full_like(normaliser_m1, -1.0))
    narrow_mV.copy_(share_mV.mul_(counted_m1))
    return total


def _fused_rows_into_gradient_(narrow_mV: Tensor, targets_m1: Tensor, counted_m1: Tensor) -> Tensor:
    """Do the same by operations of which Inductor stores none in float32; a softmax or a scatter it would store."""
    wide_mV = narrow_mV.float()
    highest_m1 = wide_mV.amax(-1, keepdim=True)
    normaliser_m1 = highest_m1 + (wide_mV - highest_m1).exp().sum(-1, keepdim=True).log()
    total = ((normaliser_m1 - wide_mV.gather(-1, targets_m1)) * counted_m1).sum()
    share_mV = (wide_mV - normaliser_m1).exp()
    is_target_mV = torch.arange(wide_mV.shape[-1], device=wide_mV.device) == targets_m1
    narrow_mV.copy_(torch.where(is_target_mV, share_mV - 1.0, share_mV) * counted_m1)
    return total


def _table_gradient(gradient_MV: Tensor, narrow_MD: Tensor, above: Tensor, number_format: torch.dtype) -> Tensor:
    """Gradient (V, D) of the table, in its own format; on a CPU some rows at a time, without a narrow copy of all."""
    found_VD = gradient_MV.new_empty(gradient_MV.shape[1], narrow_MD.shape[1], dtype=number_format)
    rows = _TABLE_ROWS if gradient_MV.is_cpu else len(found_VD)
    for narrow_Mv, found_vD in zip(gradient_MV.split(rows, 1), found_VD.split(rows), strict=True):
        found_vD.copy_(_transposed(narrow_Mv) @ narrow_MD).mul_(above)
    return found_VD


def _transposed(narrow_Mv: Tensor) -> Tensor:
    """Transpose; on a CPU by a copy in bfloat16, as it multiplies plain matrices twice as fast as transposed ones."""
    is_copied = narrow_Mv.is_cpu and narrow_Mv.dtype == torch.bfloat16
    return narrow_Mv.t().contiguous() if is_copied else narrow_Mv.t()

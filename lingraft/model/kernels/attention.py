"""Scaled dot-product attention in training on a CPU, with its backward pass, a few blocks at a time.

Legend: B batch, b blocks at a time, H heads, T tokens, K width of a head. Queries, keys and values come in one tensor
(3, B, H, T, K), queries scaled already. Scores of the blocks at hand stay in the processor's cache. Up to SHORT_TOKENS
the probabilities are kept for the backward pass; those of longer blocks are computed again, dropout included.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lingraft.model.kernels.cpu import keep_mask, keep_scale

SHORT_TOKENS = 256
_SCORES_AT_ONCE = 2**21
_TORCHS = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_TORCHS_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class AttentionSettings(NamedTuple):
    """Dropout and mask of an attention."""

    drop: float
    seed: int
    """Decides the dropout, so that the backward pass repeats it."""
    visible_B11T: Tensor | None


def attend(packed_3BHTK: Tensor, attention: AttentionSettings) -> tuple[Tensor, Tensor | None]:
    """Mixed values (B, T, H, K), and what the backward pass gets with them: probabilities (B, H, T, T), if anything."""
    if uses_torch_kernel(packed_3BHTK, attention):
        mixed_BHTK, normaliser_BHT = _TORCHS(*packed_3BHTK, scale=1.0)
        return mixed_BHTK.transpose(1, 2).contiguous(), normaliser_BHT
    _, batch, heads, tokens, width = packed_3BHTK.shape
    mixed_BTHK = packed_3BHTK.new_empty(batch, tokens, heads, width)
    short = tokens <= SHORT_TOKENS
    kept_BHTT = packed_3BHTK.new_empty(batch, heads, tokens, tokens) if short else None
    generator = torch.Generator().manual_seed(attention.seed)
    for blocks in _batch_slices(packed_3BHTK):
        out_bHTT = None if kept_BHTT is None else kept_BHTT[blocks]
        share_bHTT = _probabilities(packed_3BHTK, blocks, attention.visible_B11T, out_bHTT)
        if attention.drop:
            share_bHTT = share_bHTT * keep_mask(share_bHTT, attention.drop, generator)
        mixed_bHTK = torch.bmm(_merge_heads(share_bHTT), _merge_heads(packed_3BHTK[2, blocks]))
        mixed_BTHK[blocks] = mixed_bHTK.view(-1, heads, tokens, width).transpose(1, 2)
    return mixed_BTHK.mul_(keep_scale(attention.drop)) if attention.drop else mixed_BTHK, kept_BHTT


def attend_backward(
    gradient_BTHK: Tensor,
    packed_3BHTK: Tensor,
    mixed_BTHK: Tensor | None,
    saved: Tensor | None,
    attention: AttentionSettings,
) -> Tensor:
    """Gradient (3, B, H, T, K) of queries (as they came, scaled), keys and values.

    `mixed_BTHK` is read only where `uses_torch_kernel`; `saved` is the second output of `attend`.
    """
    if uses_torch_kernel(packed_3BHTK, attention):
        return _torchs_backward(gradient_BTHK, packed_3BHTK, mixed_BTHK, saved)
    found_3BHTK = torch.empty_like(packed_3BHTK)
    generator = torch.Generator().manual_seed(attention.seed)
    for blocks in _batch_slices(packed_3BHTK):
        query, key, value = (_merge_heads(packed_3BHTK[part, blocks]) for part in range(3))
        to_query, to_key, to_value = (_merge_heads(found_3BHTK[part, blocks]) for part in range(3))
        above = _merge_heads((gradient_BTHK[blocks] * keep_scale(attention.drop)).transpose(1, 2).contiguous())
        if saved is None:
            share = _merge_heads(_probabilities(packed_3BHTK, blocks, attention.visible_B11T))
        else:
            share = _merge_heads(saved[blocks])
        to_share = torch.bmm(above, value.transpose(1, 2))
        keep = keep_mask(share, attention.drop, generator) if attention.drop else None
        torch.bmm((share if keep is None else share * keep).transpose(1, 2), above, out=to_value)
        if keep is not None:
            to_share.mul_(keep)
        to_scores = torch._softmax_backward_data(to_share, share, -1, share.dtype)
        torch.bmm(to_scores, key, out=to_query)
        torch.bmm(to_scores.transpose(1, 2), query, out=to_key)
    return found_3BHTK


def uses_torch_kernel(packed_3BHTK: Tensor, attention: AttentionSettings) -> bool:
    """Whether torch's own fused attention is the faster one: for long blocks in float32, nothing dropped or hidden."""
    plain = not attention.drop and attention.visible_B11T is None
    return plain and packed_3BHTK.dtype != torch.bfloat16 and packed_3BHTK.shape[3] > SHORT_TOKENS


def _torchs_backward(
    gradient_BTHK: Tensor, packed_3BHTK: Tensor, mixed_BTHK: Tensor | None, normaliser_BHT: Tensor | None
) -> Tensor:
    above_BHTK = gradient_BTHK.transpose(1, 2).contiguous()
    mixed_BHTK = None if mixed_BTHK is None else mixed_BTHK.transpose(1, 2)
    found = _TORCHS_BACKWARD(above_BHTK, *packed_3BHTK, mixed_BHTK, normaliser_BHT, 0.0, False, scale=1.0)
    return torch.stack(found)


def _batch_slices(packed_3BHTK: Tensor) -> Iterator[slice]:
    """The batch, so many blocks at a time that their scores fit the cache."""
    _, batch, heads, tokens, _ = packed_3BHTK.shape
    size = max(1, _SCORES_AT_ONCE // (heads * tokens * tokens))
    return (slice(start, start + size) for start in range(0, batch, size))


def _probabilities(
    packed_3BHTK: Tensor, blocks: slice, visible_B11T: Tensor | None, out_bHTT: Tensor | None = None
) -> Tensor:
    """Return the probability of each key for each query, (b, H, T, T)."""
    query_bHTK, key_bHTK = packed_3BHTK[0, blocks], packed_3BHTK[1, blocks]
    scores = torch.bmm(_merge_heads(query_bHTK), _merge_heads(key_bHTK).transpose(1, 2))
    scores_bHTT = scores.view(*query_bHTK.shape[:3], -1)
    if visible_B11T is not None:
        scores_bHTT.masked_fill_(~visible_B11T[blocks], -torch.inf)
    return torch.softmax(scores_bHTT, -1, out=out_bHTT)


def _merge_heads(blocks_bH__: Tensor) -> Tensor:
    return blocks_bH__.flatten(0, 1)

"""Scaled dot-product attention in training on a CPU, with its backward pass, a few blocks at a time.

Legend: B batch, b blocks at a time, H heads, T tokens, K width of a head. Queries, keys and values come in one tensor
(3, B, H, T, K), queries scaled already. Scores of the blocks at hand stay in the processor's cache. Up to SHORT_TOKENS
the probabilities are kept for the backward pass; those of longer blocks are computed again, dropout included.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lingraft.kernels.dropout import drop_, kept

SHORT_TOKENS = 256
_SCORES_AT_ONCE = 2**21


class Attention(NamedTuple):
    """What an attention drops and hides."""

    drop: float
    seed: int
    """Decides the dropout, so that the backward pass repeats it."""
    visible_B11T: Tensor | None


def attend(packed_3BHTK: Tensor, attention: Attention) -> tuple[Tensor, Tensor | None]:
    """Mixed values (B, T, H, K), and the probabilities (B, H, T, T) if the backward pass gets them."""
    _, batch, heads, tokens, width = packed_3BHTK.shape
    mixed_BTHK = packed_3BHTK.new_empty(batch, tokens, heads, width)
    short = tokens <= SHORT_TOKENS
    kept_BHTT = packed_3BHTK.new_empty(batch, heads, tokens, tokens) if short else None
    generator = torch.Generator().manual_seed(attention.seed)
    for blocks in _portions(packed_3BHTK):
        out_bHTT = None if kept_BHTT is None else kept_BHTT[blocks]
        share_bHTT = _probabilities(packed_3BHTK, blocks, attention.visible_B11T, out_bHTT)
        if attention.drop:
            keep_bHTT = kept(share_bHTT.shape, attention.drop, generator)
            share_bHTT = drop_(share_bHTT.clone() if short else share_bHTT, keep_bHTT, attention.drop)
        mixed_bHTK = torch.bmm(_each_head(share_bHTT), _each_head(packed_3BHTK[2, blocks]))
        mixed_BTHK[blocks] = mixed_bHTK.view(-1, heads, tokens, width).transpose(1, 2)
    return mixed_BTHK, kept_BHTT


def attend_backward(
    gradient_BTHK: Tensor, packed_3BHTK: Tensor, kept_BHTT: Tensor | None, attention: Attention
) -> Tensor:
    """Gradient (3, B, H, T, K) of queries (as they came, scaled), keys and values."""
    found_3BHTK = torch.empty_like(packed_3BHTK)
    generator = torch.Generator().manual_seed(attention.seed)
    for blocks in _portions(packed_3BHTK):
        query, key, value = (_each_head(packed_3BHTK[part, blocks]) for part in range(3))
        to_query, to_key, to_value = (_each_head(found_3BHTK[part, blocks]) for part in range(3))
        above = _each_head(gradient_BTHK[blocks].transpose(1, 2).contiguous())
        if kept_BHTT is None:
            share_bHTT = _probabilities(packed_3BHTK, blocks, attention.visible_B11T)
        else:
            share_bHTT = kept_BHTT[blocks]
        share, to_share = _each_head(share_bHTT), torch.bmm(above, value.transpose(1, 2))
        if attention.drop:
            keep = _each_head(kept(share_bHTT.shape, attention.drop, generator))
            drop_(to_share, keep, attention.drop)
            torch.bmm(drop_(share.clone(), keep, attention.drop).transpose(1, 2), above, out=to_value)
        else:
            torch.bmm(share.transpose(1, 2), above, out=to_value)
        to_scores = torch._softmax_backward_data(to_share, share, -1, share.dtype)
        torch.bmm(to_scores, key, out=to_query)
        torch.bmm(to_scores.transpose(1, 2), query, out=to_key)
    return found_3BHTK


def _portions(packed_3BHTK: Tensor) -> Iterator[slice]:
    """The batch, so many blocks at a time that their scores fit the cache."""
    _, batch, heads, tokens, _ = packed_3BHTK.shape
    size = max(1, _SCORES_AT_ONCE // (heads * tokens * tokens))
    return (slice(start, start + size) for start in range(0, batch, size))


def _probabilities(
    packed_3BHTK: Tensor, blocks: slice, visible_B11T: Tensor | None, out_bHTT: Tensor | None = None
) -> Tensor:
    """Of each key for each query, (b, H, T, T)."""
    query_bHTK, key_bHTK = packed_3BHTK[0, blocks], packed_3BHTK[1, blocks]
    scores = torch.bmm(_each_head(query_bHTK), _each_head(key_bHTK).transpose(1, 2))
    scores_bHTT = scores.view(*query_bHTK.shape[:3], -1)
    if visible_B11T is not None:
        scores_bHTT.masked_fill_(~visible_B11T[blocks], -torch.inf)
    return torch.softmax(scores_bHTT, -1, out=out_bHTT)


def _each_head(blocks_bH__: Tensor) -> Tensor:
    return blocks_bH__.flatten(0, 1)

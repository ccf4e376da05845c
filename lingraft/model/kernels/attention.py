"""Self-attention in training on a CPU, with its backward pass, a few sequences or heads at a time.

Legend: N = B x T tokens, b sequences and h heads at a time, D width, H heads, K width of a head. Queries, keys and
values come in one tensor (3, B, H, T, K), queries scaled already. They meet in G groups of C queries with S keys: one
group of all tokens, or, in local attention, blocks of C tokens with the keys of their neighbours as well. Scores at
hand stay in the processor's cache, where those of one sequence's head, or of its blocks, fit. Up to SHORT_KEYS the
probabilities are kept for the backward pass; those of more keys are computed again, dropout included.
"""

from collections.abc import Iterator
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from lingraft.model.flops import LOCAL_BLOCKS
from lingraft.model.kernels.cpu import keep_mask, keep_scale
from lingraft.model.kernels.operations import product, product_backward

SHORT_KEYS = 256
_SCORES_AT_ONCE = 2**21
_TORCHS = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_TORCHS_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class AttentionSettings(NamedTuple):
    """Heads, dropout, mask and rotary positions of an attention."""

    heads: int
    drop: float = 0.0
    visible: Tensor | None = None
    """True where a query sees a key, of which there must be one: (B, 1, T or 1, T), or (B, G, 1, C, S) in blocks; B may
    be 1."""
    block: int | None = None
    """Tokens of a block, C, as far as local attention reaches; None where every query meets all keys."""
    rotation: tuple[Tensor, Tensor] | None = None
    """Cosines and sines (T, K) by which columns half a head apart turn; the sines of the first half are negative."""
    seed: int = 0
    """Decides the dropout, so that the backward pass repeats it."""

    @classmethod
    def drawn(
        cls,
        heads: int,
        drop: float,
        visible: Tensor | None,
        block: int | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
    ) -> Self:
        """Settings with a seed from torch's global generator, if anything is dropped."""
        seed = int(torch.randint(2**62, ())) if drop else 0
        return cls(heads=heads, drop=drop, visible=visible, block=block, rotation=rotation, seed=seed)


class SelfAttentionWeights(NamedTuple):
    """Matrices and biases, in the format of matrix products."""

    qkv_OI: Tensor
    qkv_O: Tensor | None
    out_OI: Tensor
    out_O: Tensor | None


class SavedAttention(NamedTuple):
    """Tensors that the backward pass reads; those that only gradients of weights need are absent in a frozen layer."""

    entering_ND: Tensor | None
    packed_3BHTK: Tensor
    shares: Tensor | None
    """Probabilities (B, G, H, C, S), or the normaliser (B, H, T) of torch's kernel, if either is kept."""
    mixed_ND: Tensor | None

    def of_frozen(self, attention: AttentionSettings) -> "SavedAttention":
        """Leave out what only gradients of weights need."""
        mixed_ND = self.mixed_ND if uses_torch_kernel(self.packed_3BHTK, attention) else None
        return self._replace(entering_ND=None, mixed_ND=mixed_ND)


def self_attention(
    entering_ND: Tensor, tokens: int, weights: SelfAttentionWeights, attention: AttentionSettings
) -> tuple[Tensor, SavedAttention]:
    """Project `entering_ND`, sequences of so many tokens; attend; project again (N, D)."""
    qkv_NO = product(entering_ND, weights.qkv_OI, weights.qkv_O)
    packed_3BHTK = qkv_NO.view(-1, tokens, 3, attention.heads, entering_ND.shape[1] // attention.heads)
    packed_3BHTK = packed_3BHTK.permute(2, 0, 3, 1, 4).contiguous()
    if attention.rotation:
        _rotate_(packed_3BHTK[:2], *attention.rotation)
    packed_3BHTK[0].mul_(packed_3BHTK.shape[-1] ** -0.5)
    mixed_BTHK, shares = attend(packed_3BHTK, attention)
    mixed_ND = mixed_BTHK.view_as(entering_ND)
    return product(mixed_ND, weights.out_OI, weights.out_O), SavedAttention(entering_ND, packed_3BHTK, shares, mixed_ND)


def self_attention_backward(
    above_ND: Tensor,
    weights: SelfAttentionWeights,
    saved: SavedAttention,
    attention: AttentionSettings,
    trained: tuple[bool, ...],
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Gradients of what entered (N, D), and of the weights, where they train."""
    _, batch, heads, tokens, width = saved.packed_3BHTK.shape
    to_out = product_backward(above_ND, saved.mixed_ND, trained[2:])
    to_mixed_BTHK = (above_ND @ weights.out_OI).view(batch, tokens, heads, width)
    mixed_BTHK = None if saved.mixed_ND is None else saved.mixed_ND.view_as(to_mixed_BTHK)
    to_packed_3BHTK = attend_backward(to_mixed_BTHK, saved.packed_3BHTK, mixed_BTHK, saved.shares, attention)
    to_packed_3BHTK[0].mul_(width**-0.5)
    if attention.rotation:
        cos_TK, sin_TK = attention.rotation
        _rotate_(to_packed_3BHTK[:2], cos_TK, -sin_TK)
    to_qkv_NO = to_packed_3BHTK.permute(1, 3, 0, 2, 4).reshape(batch * tokens, -1)
    to_qkv = product_backward(to_qkv_NO, saved.entering_ND, trained[:2])
    return to_qkv_NO @ weights.qkv_OI, (*to_qkv, *to_out)


def neighbourhoods(hidden: Tensor, block: int, dim: int) -> Tensor:
    """Each block's tokens and those of its neighbours: `dim` becomes the blocks (G), and the last one their 3C tokens.

    Outside the text stands padding of zeros.
    """
    blocks = -(-hidden.shape[dim] // block)
    sides = (block, (blocks + 1) * block - hidden.shape[dim])
    padded = F.pad(hidden, (*[0, 0] * (hidden.dim() - 1 - dim), *sides))
    return padded.unfold(dim, LOCAL_BLOCKS * block, block)


def in_blocks(query_BHTK: Tensor, key_BHTK: Tensor, value_BHTK: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries in blocks (B, G, H, C, K), and the keys and values of each block's neighbourhood (B, G, H, 3C, K)."""
    batch, heads, tokens, width = query_BHTK.shape
    groups = -(-tokens // block)
    padded_BHTK = F.pad(query_BHTK, (0, 0, 0, groups * block - tokens))
    query = padded_BHTK.view(batch, heads, groups, block, width).transpose(1, 2)
    key, value = (neighbourhoods(each, block, dim=2).permute(0, 2, 1, 4, 3) for each in (key_BHTK, value_BHTK))
    return query, key, value


def attend(packed_3BHTK: Tensor, attention: AttentionSettings) -> tuple[Tensor, Tensor | None]:
    """Mixed values (B, T, H, K), and `SavedAttention.shares`."""
    if uses_torch_kernel(packed_3BHTK, attention):
        bias = None if attention.visible is None else _additive(attention.visible, packed_3BHTK.dtype)
        mixed_BHTK, normaliser_BHT = _TORCHS(*packed_3BHTK, attn_mask=bias, scale=1.0)
        return mixed_BHTK.transpose(1, 2).contiguous(), normaliser_BHT
    query, key, value = _grouped(packed_3BHTK, attention.block)
    batch, groups, heads, queries, width = query.shape
    keys = key.shape[3]
    mixed_BGCHK = query.new_empty(batch, groups, queries, heads, width)
    kept_BGHCS = query.new_empty(batch, groups, heads, queries, keys) if keys <= SHORT_KEYS else None
    bias = _bias(attention, query.dtype)
    generator = torch.Generator().manual_seed(attention.seed)
    for some in _slices(query, keys):
        out_bGhCS = None if kept_BGHCS is None else kept_BGHCS[some]
        share_bGhCS = _probabilities(query[some], key[some], _of_batch(bias, some), out_bGhCS)
        if attention.drop:
            share_bGhCS = share_bGhCS * keep_mask(share_bGhCS, attention.drop, generator)
        mixed = torch.bmm(_merge_heads(share_bGhCS), _merge_heads(value[some]))
        mixed_BGCHK.transpose(2, 3)[some] = mixed.view(*share_bGhCS.shape[:-1], width)
    if attention.drop:
        mixed_BGCHK.mul_(keep_scale(attention.drop))
    return mixed_BGCHK.flatten(1, 2)[:, : packed_3BHTK.shape[3]].contiguous(), kept_BGHCS


def attend_backward(
    gradient_BTHK: Tensor,
    packed_3BHTK: Tensor,
    mixed_BTHK: Tensor | None,
    shares: Tensor | None,
    attention: AttentionSettings,
) -> Tensor:
    """Gradient (3, B, H, T, K) of queries (as they came, scaled), keys and values.

    `mixed_BTHK` is read only where `uses_torch_kernel`; `shares` is the second output of `attend`.
    """
    if uses_torch_kernel(packed_3BHTK, attention):
        return _torchs_backward(gradient_BTHK, packed_3BHTK, mixed_BTHK, shares, attention.visible)
    query, key, value = _grouped(packed_3BHTK, attention.block)
    batch, groups, heads, queries, width = query.shape
    found_3BHTK = torch.empty_like(packed_3BHTK)
    in_groups = attention.block is not None
    # Of one group, products are written where they belong.
    to_query, to_key, to_value = (
        [torch.empty_like(each) for each in (query, key, value)] if in_groups else _grouped(found_3BHTK, None)
    )
    above_BTHK = F.pad(gradient_BTHK, (0, 0, 0, 0, 0, groups * queries - gradient_BTHK.shape[1]))
    above_BGHCK = above_BTHK.reshape(batch, groups, queries, heads, width).transpose(2, 3)
    bias = _bias(attention, query.dtype)
    generator = torch.Generator().manual_seed(attention.seed)
    for some in _slices(query, key.shape[3]):
        above = _merge_heads((above_BGHCK[some] * keep_scale(attention.drop)).contiguous())
        share = _probabilities(query[some], key[some], _of_batch(bias, some)) if shares is None else shares[some]
        share = _merge_heads(share)
        to_share = torch.bmm(above, _merge_heads(value[some]).transpose(1, 2))
        keep = keep_mask(share, attention.drop, generator) if attention.drop else None
        torch.bmm((share if keep is None else share * keep).transpose(1, 2), above, out=_merge_heads(to_value[some]))
        if keep is not None:
            to_share.mul_(keep)
        to_scores = torch._softmax_backward_data(to_share, share, -1, share.dtype)
        torch.bmm(to_scores, _merge_heads(key[some]), out=_merge_heads(to_query[some]))
        torch.bmm(to_scores.transpose(1, 2), _merge_heads(query[some]), out=_merge_heads(to_key[some]))
    if in_groups:
        tokens = packed_3BHTK.shape[3]
        for part, gradient in enumerate((to_query, _summed(to_key), _summed(to_value))):
            found_3BHTK[part] = gradient.transpose(1, 2).flatten(2, 3)[:, :, :tokens]
    return found_3BHTK


def uses_torch_kernel(packed_3BHTK: Tensor, attention: AttentionSettings) -> bool:
    """Whether torch's own fused attention is the faster one: for many keys, nothing dropped, and not in bfloat16."""
    plain = not attention.drop and attention.block is None
    return plain and packed_3BHTK.dtype != torch.bfloat16 and packed_3BHTK.shape[3] > SHORT_KEYS


def _torchs_backward(
    gradient_BTHK: Tensor,
    packed_3BHTK: Tensor,
    mixed_BTHK: Tensor | None,
    normaliser_BHT: Tensor | None,
    visible: Tensor | None,
) -> Tensor:
    above_BHTK = gradient_BTHK.transpose(1, 2).contiguous()
    mixed_BHTK = None if mixed_BTHK is None else mixed_BTHK.transpose(1, 2)
    bias = None if visible is None else _additive(visible, packed_3BHTK.dtype)
    found = _TORCHS_BACKWARD(
        above_BHTK, *packed_3BHTK, mixed_BHTK, normaliser_BHT, 0.0, False, attn_mask=bias, scale=1.0
    )
    return torch.stack(found)


def _rotate_(hidden: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> None:
    """Rotate in place, in float32 or wider; with the signs of all sines turned, rotate back."""
    wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    crossed = wide.roll(hidden.shape[-1] // 2, -1)
    hidden.copy_(wide.mul_(cos_TK).addcmul_(crossed, sin_TK))


def _grouped(packed_3BHTK: Tensor, block: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (B, G, H, C, K), and the keys and values that they meet (B, G, H, S, K)."""
    query_BHTK, key_BHTK, value_BHTK = packed_3BHTK
    if block is None:
        return query_BHTK[:, None], key_BHTK[:, None], value_BHTK[:, None]
    query, key, value = in_blocks(query_BHTK, key_BHTK, value_BHTK, block)
    return query.contiguous(), key.contiguous(), value.contiguous()


def _summed(found_BGHSK: Tensor) -> Tensor:
    """Gradients (B, G, H, C, K) of each block's keys, over the groups that they were met in."""
    batch, groups, heads, keys, width = found_BGHSK.shape
    block = keys // LOCAL_BLOCKS
    parts = found_BGHSK.view(batch, groups, heads, LOCAL_BLOCKS, block, width)
    total = found_BGHSK.new_zeros(batch, groups + LOCAL_BLOCKS - 1, heads, block, width)
    for shift in range(LOCAL_BLOCKS):
        total[:, shift : shift + groups] += parts[:, :, :, shift]
    side = LOCAL_BLOCKS // 2
    return total[:, side : side + groups]


def _bias(attention: AttentionSettings, number_format: torch.dtype) -> Tensor | None:
    """The mask as what is added to scores (B, G, H, C, S), in which B, G, H and C may be 1."""
    if attention.visible is None:
        return None
    return _additive(attention.visible if attention.block else attention.visible[:, None], number_format)


def _additive(visible: Tensor, number_format: torch.dtype) -> Tensor:
    """Zeros where a query sees a key, minus infinity elsewhere; adding them is four times as fast as filling."""
    return torch.zeros_like(visible, dtype=number_format).masked_fill_(~visible, -torch.inf)


def _of_batch(bias: Tensor | None, some: tuple[slice, ...]) -> Tensor | None:
    return bias if bias is None or len(bias) == 1 else bias[some[0]]


def _slices(query_BGHCK: Tensor, keys: int) -> Iterator[tuple[slice, slice, slice]]:
    """Sequences, groups and heads at a time, so many that their scores fit the cache."""
    batch, groups, heads, queries, _ = query_BGHCK.shape
    whole, of_head = slice(None), groups * queries * keys
    sequences = _SCORES_AT_ONCE // (heads * of_head)
    # Of several groups, some heads do not lie together in memory.
    if sequences or groups > 1:
        size = max(1, sequences)
        yield from ((slice(start, start + size), whole, whole) for start in range(0, batch, size))
        return
    size = max(1, _SCORES_AT_ONCE // of_head)
    for sequence in range(batch):
        one = slice(sequence, sequence + 1)
        yield from ((one, whole, slice(start, start + size)) for start in range(0, heads, size))


def _probabilities(
    query_bGhCK: Tensor, key_bGhSK: Tensor, bias: Tensor | None, out_bGhCS: Tensor | None = None
) -> Tensor:
    """Return the probability of each key for each query, (b, G, h, C, S)."""
    scores = torch.bmm(_merge_heads(query_bGhCK), _merge_heads(key_bGhSK).transpose(1, 2))
    scores_bGhCS = scores.view(*query_bGhCK.shape[:4], -1)
    if bias is not None:
        scores_bGhCS.add_(bias)
    return torch.softmax(scores_bGhCS, -1, out=out_bGhCS)


def _merge_heads(grouped_bGh__: Tensor) -> Tensor:
    return grouped_bGh__.flatten(0, 2)

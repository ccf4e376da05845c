"""Pre-norm layers with rotary positions, global or local attention and GeGLU: ModernBERT's (Warner et al. 2024).

Legend: B batch, T tokens, D width, H attention heads, K width of a head, N blocks of C tokens.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingraft.config.encoder import EncoderShape, PreNorm
from lingraft.model.flops import LOCAL_BLOCKS

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


class Attention(NamedTuple):
    """Sight and rotary positions, which all global and all local layers have in common."""

    cos_TK: Tensor
    sin_TK: Tensor
    """Negative for the first half of a head's columns."""
    visible: Tensor | None
    """True where a query sees a key: (B, 1, T or 1, T), or (B, N, 1, C, 3C) in blocks, B being 1 without padding."""
    block: int | None = None
    """Tokens of a block, C, as far as local attention reaches; None where every query meets all keys."""

    @classmethod
    def global_(cls, tokens_BT: Tensor, shape: EncoderShape, settings: PreNorm, visible_BT: Tensor | None) -> Self:
        """Attention over all visible tokens."""
        return cls(*_rotation(tokens_BT, shape, settings.global_base), _everywhere(visible_BT))

    @classmethod
    def local(cls, tokens_BT: Tensor, shape: EncoderShape, settings: PreNorm, visible_BT: Tensor | None) -> Self:
        """Attention over the visible tokens within reach.

        A token sees itself even as padding, which may have no other in reach: a row without keys has no softmax.
        """
        tokens, reach = tokens_BT.shape[1], settings.reach
        rotation = _rotation(tokens_BT, shape, settings.local_base)
        if tokens <= reach + 1:
            return cls(*rotation, _everywhere(visible_BT))
        places_T = torch.arange(tokens, device=tokens_BT.device)
        if tokens <= LOCAL_BLOCKS * reach:
            distance_TT = (places_T[:, None] - places_T).abs()
            visible = (distance_TT <= reach)[None, None]
            if visible_BT is not None:
                visible = visible & visible_BT[:, None, None, :] | (distance_TT == 0)
            return cls(*rotation, visible)
        blocks = -(-tokens // reach)
        start_N1 = reach * torch.arange(blocks, device=tokens_BT.device)[:, None]
        queries_NC1 = (start_N1 + torch.arange(reach, device=tokens_BT.device))[:, :, None]
        keys_NX = start_N1 - reach + torch.arange(LOCAL_BLOCKS * reach, device=tokens_BT.device)
        distance_NCX = (queries_NC1 - keys_NX[:, None, :]).abs()
        present_BT = torch.ones_like(tokens_BT[:1], dtype=torch.bool) if visible_BT is None else visible_BT
        seen_BNX = _neighbourhoods(present_BT, reach, dim=1)
        visible_BNCX = (distance_NCX <= reach) & seen_BNX[:, :, None, :] | (distance_NCX == 0)
        return cls(*rotation, visible_BNCX[:, :, None], reach)

    def attend(self, query_BHTK: Tensor, key_BHTK: Tensor, value_BHTK: Tensor, dropout: float) -> Tensor:
        """Return the mixed values (B, H, T, K) of rotated queries and keys."""
        if self.block is None:
            return F.scaled_dot_product_attention(query_BHTK, key_BHTK, value_BHTK, self.visible, dropout)
        batch, heads, tokens, width = query_BHTK.shape
        blocks = -(-tokens // self.block)
        assert self.visible is not None
        query, key, value = (each.flatten(0, 1) for each in _in_blocks(query_BHTK, key_BHTK, value_BHTK, self.block))
        visible = self.visible.expand(batch, -1, -1, -1, -1).flatten(0, 1)
        mixed = F.scaled_dot_product_attention(query, key, value, visible, dropout)
        mixed_BNHCK = mixed.view(batch, blocks, heads, self.block, width)
        return mixed_BNHCK.transpose(1, 2).reshape(batch, heads, -1, width)[:, :, :tokens]


class PreNormLayer(nn.Module):
    """Layer that adds attention and a gated feed-forward layer to what it normalises before each."""

    def __init__(self, shape: EncoderShape, is_first: bool = False) -> None:
        """Create the layer; the first one has no norm before attention, as it follows that of the embeddings."""
        super().__init__()
        settings, width, inner = pre_norm_of(shape), shape.width, shape.feedforward_width
        self.attention_heads, self.dropout = shape.attention_heads, shape.dropout
        self.activation = ACTIVATIONS[shape.family.activation]
        self.attention_norm = nn.Identity() if is_first else layer_norm(shape)
        self.qkv = nn.Linear(width, 3 * width, bias=settings.attention_bias)
        self.attention_out = nn.Linear(width, width, bias=settings.attention_bias)
        self.feedforward_norm = layer_norm(shape)
        self.up = nn.Linear(width, 2 * inner, bias=settings.feedforward_bias)
        self.down = nn.Linear(inner, width, bias=settings.feedforward_bias)

    def forward(self, hidden_BTD: Tensor, attention: Attention) -> Tensor:
        """Return the hidden states (B, T, D) after the layer, which are not normalised."""
        batch, tokens, width = hidden_BTD.shape
        qkv = self.qkv(self.attention_norm(hidden_BTD)).view(batch, tokens, 3, self.attention_heads, -1)
        query_BHTK, key_BHTK, value_BHTK = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed_BHTK = attention.attend(
            _rotated(query_BHTK, attention),
            _rotated(key_BHTK, attention),
            value_BHTK,
            self.dropout if self.training else 0.0,
        )
        mixed_BTD = self.attention_out(mixed_BHTK.transpose(1, 2).reshape(batch, tokens, width))
        hidden_BTD = hidden_BTD + self._drop(mixed_BTD)
        activated, gate = self.up(self.feedforward_norm(hidden_BTD)).chunk(2, dim=-1)
        added_BTD: Tensor = self.down(self._drop(self.activation(activated) * gate))
        return hidden_BTD + added_BTD

    def _drop(self, hidden: Tensor) -> Tensor:
        return F.dropout(hidden, self.dropout, self.training) if self.dropout else hidden


def layer_norm(shape: EncoderShape) -> nn.LayerNorm:
    """LayerNorm of a family: with or without a bias."""
    pre_norm = shape.family.pre_norm
    return nn.LayerNorm(shape.width, shape.family.layer_norm_eps, bias=pre_norm is None or pre_norm.norm_bias)


def pre_norm_of(shape: EncoderShape) -> PreNorm:
    """Return the settings of a shape that has pre-norm layers."""
    assert shape.family.pre_norm is not None
    return shape.family.pre_norm


def rotary_frequencies(shape: EncoderShape, base: float, device: torch.device | None = None) -> Tensor:
    """Return the angles by which one place turns the pairs of a head's columns (K / 2)."""
    width = shape.width // shape.attention_heads
    return base ** (-torch.arange(0, width, 2, device=device).float() / width)


def _rotation(tokens_BT: Tensor, shape: EncoderShape, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines (T, K) of the angles by which a place turns a head's columns (Su et al. 2021, equation 15)."""
    frequency_K = rotary_frequencies(shape, base, tokens_BT.device)
    places_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device).float()
    angle_TK = torch.outer(places_T, frequency_K)
    cos_TK, sin_TK = angle_TK.cos(), angle_TK.sin()
    return cos_TK.repeat(1, 2), torch.cat([-sin_TK, sin_TK], dim=-1)


def _everywhere(visible_BT: Tensor | None) -> Tensor | None:
    """Sight of all visible tokens (B, 1, 1, T); None where there is no padding, for which attention needs no mask."""
    return None if visible_BT is None else visible_BT[:, None, None, :]


def _rotated(hidden_BHTK: Tensor, attention: Attention) -> Tensor:
    """Turn pairs of columns, half a head apart, by their places' angles, in float32 under autocast as well."""
    one, other = hidden_BHTK.chunk(2, dim=-1)
    crossed_BHTK = torch.cat([other, one], dim=-1)
    return (hidden_BHTK * attention.cos_TK + crossed_BHTK * attention.sin_TK).to(hidden_BHTK.dtype)


def _neighbourhoods(hidden: Tensor, block: int, dim: int) -> Tensor:
    """Each block's tokens and those of its neighbours: `dim` becomes the blocks (G), and the last one their 3C tokens.

    Outside the text stands padding of zeros.
    """
    blocks = -(-hidden.shape[dim] // block)
    sides = (block, (blocks + 1) * block - hidden.shape[dim])
    padded = F.pad(hidden, (*[0, 0] * (hidden.dim() - 1 - dim), *sides))
    return padded.unfold(dim, LOCAL_BLOCKS * block, block)


def _in_blocks(query_BHTK: Tensor, key_BHTK: Tensor, value_BHTK: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries in blocks (B, G, H, C, K), and the keys and values of each block's neighbourhood (B, G, H, 3C, K)."""
    batch, heads, tokens, width = query_BHTK.shape
    groups = -(-tokens // block)
    padded_BHTK = F.pad(query_BHTK, (0, 0, 0, groups * block - tokens))
    query = padded_BHTK.view(batch, heads, groups, block, width).transpose(1, 2)
    key, value = (_neighbourhoods(each, block, dim=2).permute(0, 2, 1, 4, 3) for each in (key_BHTK, value_BHTK))
    return query, key, value

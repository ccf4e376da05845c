"""Layers of heads between a body and an output projection, by family.

Legend: B batch, T tokens, D width.
"""

from collections.abc import Callable
from typing import NamedTuple, assert_never

import torch
from torch import Tensor, nn

from lingraft.config.encoder import EncoderShape
from lingraft.config.training import Pooling
from lingraft.model.pre_norm import ACTIVATIONS, layer_norm


class HeadLayers(NamedTuple):
    """Layers that turn hidden states (..., D) into features (..., D); identities stand where a head has none."""

    dense: nn.Module
    activation: Callable[[Tensor], Tensor]
    norm: nn.Module


def mean_of_tokens(hidden_BTD: Tensor, counted_BT: Tensor) -> Tensor:
    """Return the mean (B, D) of the states of each text's tokens that count; one at least must."""
    weights_BT1 = counted_BT[:, :, None].to(hidden_BTD.dtype)
    return (hidden_BTD * weights_BT1).sum(1) / weights_BT1.sum(1)


def pool(hidden_BTD: Tensor, visible_BT: Tensor, pooling: Pooling) -> Tensor:
    """Return one vector (B, D) a text of its tokens' states; padding stands behind the tokens."""
    match pooling:
        case "mean":
            return mean_of_tokens(hidden_BTD, visible_BT)
        case "first":
            return hidden_BTD[:, 0]
        case "last":
            return hidden_BTD[torch.arange(len(hidden_BTD), device=hidden_BTD.device), visible_BT.sum(1) - 1]
        case unknown:
            assert_never(unknown)


def mlm_head_layers(shape: EncoderShape) -> HeadLayers:
    """Layers of an MLM head."""
    pre_norm = shape.family.pre_norm
    dense = nn.Linear(shape.width, shape.width, bias=pre_norm is None or pre_norm.head_bias)
    return HeadLayers(dense, ACTIVATIONS[shape.family.head_activation], layer_norm(shape))


def classifier_layers(shape: EncoderShape) -> HeadLayers:
    """Layers of a classifier of texts: RoBERTa's dense layer and tanh, or those of ModernBERT's MLM head."""
    if shape.family.pre_norm:
        return mlm_head_layers(shape)
    return HeadLayers(nn.Linear(shape.width, shape.width), torch.tanh, nn.Identity())


def token_layers(shape: EncoderShape) -> HeadLayers:
    """Layers of a head at every token: none in RoBERTa's and BERT's tasks, those of the MLM head in ModernBERT's."""
    if shape.family.pre_norm:
        return mlm_head_layers(shape)
    return HeadLayers(nn.Identity(), nn.Identity(), nn.Identity())

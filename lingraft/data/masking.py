"""Masked language modelling targets: a fixed share of tokens, of these 80% masked, 10% replaced, 10% kept."""

import math
from typing import NamedTuple, Self

import torch
from torch import Tensor

from lingraft.data.rng import RANDOM_BITS, counter_random
from lingraft.data.tokenizer.pieces import SpecialIds

NOT_PREDICTED = -100
"""Target of a place that does not count: what cross_entropy ignores."""
_REPLACED_BY_MASK, _REPLACED_AT_RANDOM = 0.8, 0.1


class MaskedBatch(NamedTuple):
    """A masked batch: M tokens of B x T are to be predicted."""

    tokens_BT: Tensor
    positions_M: Tensor
    """Places in the flattened batch, rising."""
    targets_M: Tensor
    """Token ids; NOT_PREDICTED where a batch of mostly special tokens left no others to choose."""


class MaskingVocabulary(NamedTuple):
    """Which pieces of a vocabulary may be hidden, and what hides them."""

    mask_id: int
    special_V: Tensor
    """True at special pieces, which are neither hidden nor drawn."""
    ordinary_N: Tensor
    """Ids of all other pieces."""

    @classmethod
    def of(cls, vocabulary: int, special: SpecialIds, device: torch.device) -> Self:
        """The pieces of a vocabulary of the size given.

        Args:
            vocabulary: V.
            special: ids of its special pieces.
            device: where batches will be.
        """
        special_V = torch.zeros(vocabulary, dtype=torch.bool)
        special_V[list(special)] = True
        return cls(special.mask, special_V.to(device), (~special_V).nonzero().flatten().to(device))


def mask_tokens(
    tokens_BT: Tensor, mask_rate: float, pieces: MaskingVocabulary, seed: int, first: int = 0
) -> MaskedBatch:
    """Choose tokens, none of them special, and hide them: 80% masked, 10% random, 10% kept.

    How many, and which, depends on a block's place in the stream alone: not on the blocks that share its batch, and
    nothing waits for the device to count.

    Args:
        tokens_BT: token ids, int64.
        mask_rate: share of all tokens that are predicted, see `count_predicted`.
        pieces: the vocabulary's, on the tokens' device.
        seed: decides all masks of a stream, 63 bits.
        first: place in the stream of the batch's first block.
    """
    device, (blocks, tokens) = tokens_BT.device, tokens_BT.shape
    lots_BT, fates_BT, draws_BT = (
        counter_random(seed, 3 * first, 3 * blocks, tokens, device).view(blocks, 3, tokens).unbind(1)
    )
    most = max(count_predicted(mask_rate, tokens, place, 1) for place in range(first, first + blocks))
    lots_BT = lots_BT.masked_fill(pieces.special_V[tokens_BT], -1)
    places_BK = lots_BT.topk(most).indices + tokens * torch.arange(blocks, device=device)[:, None]
    surplus_BK = torch.arange(most, device=device) >= _counts(mask_rate, tokens, first, blocks, device)[:, None]
    in_order = places_BK.masked_fill(surplus_BK, tokens_BT.numel()).flatten().sort().values
    positions_M = in_order[: count_predicted(mask_rate, tokens, first, blocks)]
    targets_M = tokens_BT.flatten()[positions_M]
    fate_M = fates_BT.flatten()[positions_M] / 2**RANDOM_BITS
    drawn_M = draws_BT.flatten()[positions_M] % len(pieces.ordinary_N)
    hidden_M = torch.where(fate_M < _REPLACED_BY_MASK, pieces.mask_id, targets_M)
    hidden_M = torch.where(fate_M >= 1 - _REPLACED_AT_RANDOM, pieces.ordinary_N[drawn_M], hidden_M)
    special_M = pieces.special_V[targets_M]
    masked = tokens_BT.flatten().clone()
    masked[positions_M] = torch.where(special_M, targets_M, hidden_M)
    return MaskedBatch(masked.view_as(tokens_BT), positions_M, targets_M.masked_fill(special_M, NOT_PREDICTED))


def count_predicted(mask_rate: float, tokens: int, first: int, blocks: int) -> int:
    """How many tokens are predicted in some blocks of a stream: the share of all, to the nearest token.

    Args:
        mask_rate: share of all tokens.
        tokens: of a block.
        first: place in the stream of the first of the blocks.
        blocks: how many, one behind the other.
    """
    before, after = (math.floor(mask_rate * tokens * place + 0.5) for place in (first, first + blocks))
    return after - before


def _counts(mask_rate: float, tokens: int, first: int, blocks: int, device: torch.device) -> Tensor:
    """Return `count_predicted` of each block (B), computed on the device, which need not wait for the host."""
    places = torch.arange(first, first + blocks + 1, dtype=torch.float64, device=device)
    return (mask_rate * tokens * places + 0.5).floor().diff()

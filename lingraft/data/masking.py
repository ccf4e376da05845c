"""Masking for masked language modelling: of a fixed share of tokens, 80% are masked, 10% replaced, 10% kept."""

import math
from typing import NamedTuple, Self

import torch
from torch import Tensor

from lingraft.data.rng import RANDOM_BITS, counter_random
from lingraft.data.tokenizer.pieces import SpecialIds

NOT_PREDICTED = -100
"""Target that the loss ignores (`ignore_index` of cross_entropy)."""
_REPLACED_BY_MASK, _REPLACED_AT_RANDOM = 0.8, 0.1


class MaskedBatch(NamedTuple):
    """A masked batch of B x T tokens, of which M are to be predicted."""

    tokens_BT: Tensor
    positions_M: Tensor
    """Indices into the flattened batch, ascending."""
    targets_M: Tensor
    """Token ids; NOT_PREDICTED where a batch has too few tokens that are not special."""


class MaskingVocabulary(NamedTuple):
    """The part of a vocabulary that masking needs: its mask token, and which pieces may be masked."""

    mask_id: int
    special_V: Tensor
    """True at special pieces, which are neither masked nor drawn as replacements."""
    ordinary_N: Tensor
    """Ids of all other pieces."""

    @classmethod
    def of(cls, vocabulary: int, special: SpecialIds, device: torch.device) -> Self:
        """Describe a vocabulary of V pieces."""
        special_V = torch.zeros(vocabulary, dtype=torch.bool)
        special_V[list(special)] = True
        return cls(special.mask, special_V.to(device), (~special_V).nonzero().flatten().to(device))


def mask_tokens(
    tokens_BT: Tensor, mask_rate: float, pieces: MaskingVocabulary, seed: int, first: int = 0
) -> MaskedBatch:
    """Choose tokens that are not special, and mask 80% of them, replace 10% at random, and keep 10%.

    The choice depends on a block's position in the stream alone, not on the other blocks of its batch. It does not
    synchronise the host with the device.

    Args:
        tokens_BT: token ids, int64.
        mask_rate: share of all tokens that are predicted, see `count_predicted`.
        pieces: the vocabulary, on the tokens' device.
        seed: seed of all masks of a stream, 63 bits.
        first: position in the stream of the batch's first block.
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
    """Return how many tokens are predicted in some blocks of a stream: their share, to the nearest token."""
    before, after = (math.floor(mask_rate * tokens * place + 0.5) for place in (first, first + blocks))
    return after - before


def _counts(mask_rate: float, tokens: int, first: int, blocks: int, device: torch.device) -> Tensor:
    """Return `count_predicted` of each block (B), computed on the device, which need not wait for the host."""
    places = torch.arange(first, first + blocks + 1, dtype=torch.float64, device=device)
    return (mask_rate * tokens * places + 0.5).floor().diff()

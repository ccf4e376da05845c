"""Masked language modelling targets: a fixed share of tokens, of these 80% masked, 10% replaced, 10% kept."""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from lingraft.pieces import SpecialIds

NOT_PREDICTED = -100
"""Target of a place that does not count: what cross_entropy ignores."""
_REPLACED_BY_MASK, _REPLACED_AT_RANDOM = 0.8, 0.1


class Masked(NamedTuple):
    """A masked batch: M tokens of B x T are to be predicted."""

    tokens_BT: Tensor
    positions_M: Tensor
    """Places in the flattened batch, rising."""
    targets_M: Tensor
    """Token ids; NOT_PREDICTED where a batch of mostly special tokens left no others to choose."""


class Maskable(NamedTuple):
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


def mask(tokens_BT: Tensor, mask_rate: float, pieces: Maskable, generator: torch.Generator) -> Masked:
    """Choose round(mask_rate * B * T) tokens, none of them special, and hide them: 80% masked, 10% random, 10% kept.

    The number is the same in every batch, so nothing waits for the device to count.

    Args:
        tokens_BT: token ids, int64.
        mask_rate: share of all tokens that are predicted.
        pieces: the vocabulary's, on the tokens' device.
        generator: the only source of randomness, on the tokens' device.
    """
    device = tokens_BT.device
    flat = tokens_BT.flatten()
    count = round(mask_rate * flat.numel())
    lots = torch.rand(flat.shape, generator=generator, device=device)
    lots = lots.masked_fill(pieces.special_V[flat], -1.0)
    positions_M = lots.topk(count, sorted=False).indices.sort().values
    targets_M = flat[positions_M]
    fate_M = torch.rand(count, generator=generator, device=device)
    drawn_M = torch.randint(len(pieces.ordinary_N), (count,), generator=generator, device=device)
    hidden_M = torch.where(fate_M < _REPLACED_BY_MASK, pieces.mask_id, targets_M)
    hidden_M = torch.where(fate_M >= 1 - _REPLACED_AT_RANDOM, pieces.ordinary_N[drawn_M], hidden_M)
    special_M = pieces.special_V[targets_M]
    masked = flat.clone()
    masked[positions_M] = torch.where(special_M, targets_M, hidden_M)
    return Masked(masked.view_as(tokens_BT), positions_M, targets_M.masked_fill(special_M, NOT_PREDICTED))

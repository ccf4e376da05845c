"""Masked language modelling: the loss that trains primaries and embeddings, and the accuracy that judges them."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from lingraft.encoder import Encoder
from lingraft.kernels.cross_entropy import summed_cross_entropy
from lingraft.masking import NOT_PREDICTED, Maskable, mask
from lingraft.noise import seed_of
from lingraft.progress import counted
from lingraft.stream import Drawn

JUDGED_MASK_RATE = 0.15
"""Accuracy is always measured at 15%, whatever the rate in training."""
_JUDGED_SEED = 20_221_210
_EVALUATION_BATCH = 64


class MaskedLmLoss(nn.Module):
    """The loss of a batch: mean over heads of the cross-entropy at masked positions (section 2)."""

    def __init__(self, encoder: Encoder, depths: tuple[int, ...], mask_rate: float, seed: int) -> None:
        """Say what predicts, and how much.

        Args:
            encoder: body and vocabulary.
            depths: heads whose losses are averaged; no layer above the deepest is computed.
            mask_rate: share of tokens to predict.
            seed: decides the masks.
        """
        super().__init__()
        self.encoder, self.depths, self.mask_rate = encoder, depths, mask_rate
        self.seed, self.pieces = seed_of("masks", seed), _pieces(encoder)

    def forward(self, drawn: Drawn) -> Tensor:
        """A scalar. Places that a block of mostly special tokens leaves unpredicted count as predicted with no loss.

        The divisor is then the same for all blocks, however they are divided into batches.
        """
        tokens_BT = drawn.tokens_BT.to(self.encoder.positions_TD.device, non_blocking=True)
        masked = mask(tokens_BT, self.mask_rate, self.pieces, self.seed, drawn.first)
        features, vocabulary = self.encoder.masked_features(*masked[:2], self.depths), self.encoder.vocabulary
        losses = [
            summed_cross_entropy(each_MD, vocabulary.table_VD, vocabulary.bias_V, masked.targets_M, NOT_PREDICTED)
            for each_MD in features.values()
        ]
        return torch.stack(losses).mean() / max(len(masked.targets_M), 1)


@torch.inference_mode()
def accuracy(encoder: Encoder, blocks_NT: Tensor, depths: Iterable[int]) -> dict[int, float]:
    """Share of masked tokens found by the head at each depth, over all blocks (N, T).

    The masks are the same in every call, so that scores of one tokenizer's texts compare pair by pair.
    """
    depths = tuple(depths)
    encoder.eval()
    device, pieces = encoder.positions_TD.device, _pieces(encoder)
    found, judged = dict.fromkeys(depths, 0), 0
    batches = blocks_NT.split(_EVALUATION_BATCH)
    for number, tokens_BT in enumerate(counted(batches, "judge masked tokens", "batch", len(batches))):
        first = number * _EVALUATION_BATCH
        masked = mask(tokens_BT.long().to(device), JUDGED_MASK_RATE, pieces, _JUDGED_SEED, first)
        logits = encoder.masked_logits(masked.tokens_BT, masked.positions_M, depths)
        for depth, logits_MV in logits.items():
            found[depth] += int((logits_MV.argmax(-1) == masked.targets_M).sum())
        judged += int((masked.targets_M != NOT_PREDICTED).sum())
    return {depth: count / judged for depth, count in found.items()}


def _pieces(encoder: Encoder) -> Maskable:
    vocabulary = encoder.vocabulary
    return Maskable.of(len(vocabulary), vocabulary.special, encoder.positions_TD.device)

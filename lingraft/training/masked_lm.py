"""Masked language modelling: the loss that trains primaries and embeddings, and the accuracy that evaluates them."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingraft.console import with_progress
from lingraft.data.masking import NOT_PREDICTED, MaskingVocabulary, mask_tokens
from lingraft.data.rng import derive_seed
from lingraft.model.compiled import compiled
from lingraft.model.encoder import Encoder
from lingraft.tasks.item_counts import ItemCounts
from lingraft.training.batches import MaskedLmBatch, to_device

EVALUATION_MASK_RATE = 0.15
"""Accuracy is always measured at this rate, whatever the rate in training."""
_EVALUATION_SEED = 20_221_210
_EVALUATION_BATCH = 64


class MaskedLmLoss(nn.Module):
    """Loss of a batch: the mean over heads of the cross-entropy at masked positions (paper section 2)."""

    def __init__(self, encoder: Encoder, depths: tuple[int, ...], mask_rate: float, seed: int) -> None:
        """Create the loss; no layer above the deepest of `depths` is computed."""
        super().__init__()
        self.encoder = encoder
        self.depths = depths
        self.mask_rate = mask_rate
        self.seed = derive_seed("masks", seed)
        self.pieces = _pieces(encoder)

    def forward(self, drawn: MaskedLmBatch) -> Tensor:
        """Return the loss, a scalar.

        Places that a block of mostly special tokens leaves unpredicted count as predicted with no loss. So the divisor
        is the same for all blocks, however they are divided into batches.
        """
        tokens_BT = to_device(drawn.tokens_BT, self.encoder.device)
        masked = mask_tokens(tokens_BT, self.mask_rate, self.pieces, self.seed, drawn.first)
        hidden = self.encoder.hidden_states(masked.tokens_BT, self.depths, below_heads=True)
        features, vocabulary = self.encoder.features(hidden, masked.positions_M), self.encoder.vocabulary
        loss_of = compiled(_summed_cross_entropy) if self.encoder.fused else _summed_cross_entropy
        whole = vocabulary.whole()  # joins borrowed rows to the table, once for all heads
        losses = [loss_of(each_MD, *whole, masked.targets_M) for each_MD in features.values()]
        return torch.stack(losses).mean() / max(len(masked.targets_M), 1)


def accuracy(encoder: Encoder, blocks_NT: Tensor, depths: Iterable[int]) -> dict[int, float]:
    """Share of masked tokens found by the head at each depth, over all blocks (N, T).

    The masks are the same in every call, so that scores of one tokenizer's texts compare pair by pair.
    """
    return {depth: counts.score for depth, counts in accuracy_counts(encoder, blocks_NT, depths).items()}


def accuracy_counts(encoder: Encoder, blocks_NT: Tensor, depths: Iterable[int]) -> dict[int, ItemCounts]:
    """Count the masked tokens of each block, and those of them found by the head at each depth."""
    return _evaluate_masked(encoder, blocks_NT, depths, lambda logits_MV, targets_M: logits_MV.argmax(-1) == targets_M)


def mean_loss(encoder: Encoder, blocks_NT: Tensor, depths: Iterable[int]) -> dict[int, float]:
    """Mean cross-entropy in nats of the same masked tokens by the head at each depth."""

    def losses(logits_MV: Tensor, targets_M: Tensor) -> Tensor:
        return F.cross_entropy(logits_MV.float(), targets_M, ignore_index=NOT_PREDICTED, reduction="none")

    return {depth: counts.score for depth, counts in _evaluate_masked(encoder, blocks_NT, depths, losses).items()}


@torch.inference_mode()
def _evaluate_masked(
    encoder: Encoder, blocks_NT: Tensor, depths: Iterable[int], measure: Callable[[Tensor, Tensor], Tensor]
) -> dict[int, ItemCounts]:
    """Count masked tokens by block, and add up what is measured (M) of their logits (M, V) and targets."""
    depths = tuple(depths)
    encoder.eval()
    device, pieces = encoder.device, _pieces(encoder)
    found: dict[int, list[Tensor]] = {depth: [] for depth in depths}
    masked_by_block: list[Tensor] = []
    batches = blocks_NT.split(_EVALUATION_BATCH)
    for number, tokens_BT in enumerate(with_progress(batches, "judge masked tokens", "batch", len(batches))):
        first = number * _EVALUATION_BATCH
        masked = mask_tokens(tokens_BT.long().to(device), EVALUATION_MASK_RATE, pieces, _EVALUATION_SEED, first)
        logits = encoder.masked_logits(masked.tokens_BT, masked.positions_M, depths)
        blocks_M, blocks = masked.positions_M // tokens_BT.shape[1], len(tokens_BT)
        for depth, logits_MV in logits.items():
            measured_M = measure(logits_MV, masked.targets_M).double()
            found[depth].append(blocks_M.bincount(measured_M, minlength=blocks))
        masked_by_block.append(blocks_M[masked.targets_M != NOT_PREDICTED].bincount(minlength=blocks))
    out_of_N = torch.cat(masked_by_block).cpu().numpy()
    return {depth: ItemCounts.of(torch.cat(parts).cpu().numpy(), out_of_N) for depth, parts in found.items()}


def _summed_cross_entropy(features_MD: Tensor, table_VD: Tensor, bias_V: Tensor, targets_M: Tensor) -> Tensor:
    logits_MV = F.linear(features_MD, table_VD, bias_V)
    return F.cross_entropy(logits_MV.float(), targets_M, ignore_index=NOT_PREDICTED, reduction="sum")


def _pieces(encoder: Encoder) -> MaskingVocabulary:
    vocabulary = encoder.vocabulary
    return MaskingVocabulary.of(len(vocabulary), vocabulary.special, encoder.device)

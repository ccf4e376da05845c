"""Masked language modelling: the loss that trains primaries and embeddings, and the accuracy that judges them."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from lingraft.encoder import Encoder
from lingraft.masking import NOT_PREDICTED, Maskable, mask
from lingraft.progress import counted

JUDGED_MASK_RATE = 0.15
"""Accuracy is always measured at 15%, whatever the rate in training."""
_JUDGED_SEED = 20_221_210
_EVALUATION_BATCH = 64


def loss(
    encoder: Encoder, depths: tuple[int, ...], mask_rate: float, generator: torch.Generator
) -> Callable[[Tensor], Tensor]:
    """The loss of a batch of tokens (B, T): mean over heads of the cross-entropy at masked positions (section 2).

    Args:
        encoder: body and vocabulary.
        depths: heads whose losses are averaged; no layer above the deepest is computed.
        mask_rate: share of tokens to predict.
        generator: randomness of the masks, on the encoder's device.
    """

    pieces = _pieces(encoder)

    def loss_of(tokens_BT: Tensor) -> Tensor:
        masked = mask(tokens_BT, mask_rate, pieces, generator)
        logits = encoder.masked_logits(masked.tokens_BT, masked.positions_M, depths)
        losses = [F.cross_entropy(logits_MV.float(), masked.targets_M) for logits_MV in logits.values()]
        return torch.stack(losses).mean()

    return loss_of


@torch.inference_mode()
def accuracy(encoder: Encoder, blocks_NT: Tensor, depths: Iterable[int]) -> dict[int, float]:
    """Share of masked tokens found by the head at each depth, over all blocks (N, T).

    The masks are the same in every call, so that scores of one tokenizer's texts compare pair by pair.
    """
    depths = tuple(depths)
    encoder.eval()
    device, pieces = encoder.positions_TD.device, _pieces(encoder)
    generator = torch.Generator(device).manual_seed(_JUDGED_SEED)
    found, judged = dict.fromkeys(depths, 0), 0
    batches = blocks_NT.split(_EVALUATION_BATCH)
    for tokens_BT in counted(batches, "judge masked tokens", "batch", len(batches)):
        masked = mask(tokens_BT.long().to(device), JUDGED_MASK_RATE, pieces, generator)
        logits = encoder.masked_logits(masked.tokens_BT, masked.positions_M, depths)
        for depth, logits_MV in logits.items():
            found[depth] += int((logits_MV.argmax(-1) == masked.targets_M).sum())
        judged += int((masked.targets_M != NOT_PREDICTED).sum())
    return {depth: count / judged for depth, count in found.items()}


def _pieces(encoder: Encoder) -> Maskable:
    vocabulary = encoder.vocabulary
    return Maskable.of(len(vocabulary), vocabulary.special, encoder.positions_TD.device)

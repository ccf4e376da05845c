"""Nearness of a language's hidden states to the source language's: retrieval of counterparts, which needs no labels.

Legend: N pairs, B batch, T tokens, D width, V vocabulary, K pieces.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lingraft.model.encoder import Encoder
from lingraft.model.heads import mean_of_tokens
from lingraft.stages.results import RetrievalScores
from lingraft.tasks.item_counts import ItemCounts

_BATCH = 64
OCCURRENCES = 8
"""Occurrences of a piece whose contexts are averaged at most."""
_MASKED_EVERY = 7
"""Tokens of which at most one is masked at a time, about the rate that encoders are trained at."""


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """Retrieval among pairs: its scores, and what they are made of."""

    scores: RetrievalScores
    tally: ItemCounts
    """Number of the two directions, of each pair, in which its counterpart was found."""


def retrieve(source_ND: Tensor, target_ND: Tensor) -> RetrievalResult:
    """Look for each row's counterpart among all rows of the other language, by cosine, each language centred.

    Args:
        source_ND: hidden states of the source language, float.
        target_ND: hidden states of the target language; row i is the counterpart of the source's row i.
    """
    source_ND, target_ND = (F.normalize(each - each.mean(0), dim=1) for each in (source_ND.float(), target_ND.float()))
    cosine_NN = target_ND @ source_ND.T
    nearest_source_N, nearest_target_N = cosine_NN.argmax(1), cosine_NN.argmax(0)
    own_N = torch.arange(len(cosine_NN))
    to_source_N, from_source_N = nearest_source_N == own_N, nearest_target_N == own_N
    mutual_N = nearest_target_N[nearest_source_N] == own_N
    scores = RetrievalScores(
        to_source=to_source_N.double().mean().item(),
        from_source=from_source_N.double().mean().item(),
        mutual_cosine=cosine_NN.max(1).values[mutual_N].double().mean().item(),
    )
    found_N = to_source_N.double() + from_source_N.double()
    return RetrievalResult(scores, ItemCounts.of(found_N.numpy(), torch.full_like(found_N, 2.0).numpy()))


@torch.inference_mode()
def mean_states(encoder: Encoder, sequences: Sequence[Sequence[int]], depths: Iterable[int]) -> dict[int, Tensor]:
    """Mean hidden states (N, D) of token sequences after each depth, in float32 on the CPU.

    Args:
        encoder: encoder with the vocabulary of the sequences.
        sequences: ids without special tokens, at least one each; what exceeds a block is cut off.
        depths: layer numbers, from 1.
    """
    depths = tuple(depths)
    encoder.eval()
    special, room = encoder.vocabulary.special, encoder.shape.block_tokens - 2
    means = {depth: torch.empty(len(sequences), encoder.shape.width) for depth in depths}
    order = sorted(range(len(sequences)), key=lambda index: len(sequences[index]))  # little padding
    for rows in (order[start : start + _BATCH] for start in range(0, len(order), _BATCH)):
        cut = [[special.begin, *sequences[row][:room], special.end] for row in rows]
        longest = max(map(len, cut))
        padded = [ids + [special.pad] * (longest - len(ids)) for ids in cut]
        tokens_BT = torch.tensor(padded, device=encoder.device)
        content_BT = torch.zeros_like(tokens_BT, dtype=torch.bool)
        for place, ids in enumerate(cut):
            content_BT[place, 1 : len(ids) - 1] = True
        found = encoder.hidden_states(tokens_BT, depths, visible_BT=tokens_BT != special.pad)
        for depth, hidden_BTD in found.items():
            means[depth][rows] = mean_of_tokens(hidden_BTD, content_BT).float().cpu()
    return means


@torch.inference_mode()
def context_states(encoder: Encoder, blocks_NT: Tensor, ids_K: Tensor, depths: Iterable[int]) -> dict[int, Tensor]:
    """Mean hidden states (K, D) of the places where pieces occur, after each depth, in float32 on the CPU.

    The piece itself is masked there: a row that was copied from the source would find itself, whatever its context.

    Args:
        encoder: encoder with the vocabulary of the blocks.
        blocks_NT: token ids, all of one length, without padding.
        ids_K: pieces, each of which occurs. The first `OCCURRENCES` of each are read.
        depths: layer numbers, from 1.
    """
    depths, device = tuple(depths), encoder.device
    encoder.eval()
    if not len(ids_K):
        return {depth: torch.zeros(0, encoder.shape.width) for depth in depths}
    slot_V = torch.full((len(encoder.vocabulary),), -1)
    slot_V[ids_K] = torch.arange(len(ids_K))
    slots_NT = _first(slot_V[blocks_NT], len(ids_K))
    sums = {depth: torch.zeros(len(ids_K), encoder.shape.width, dtype=torch.double) for depth in depths}
    for rows_B, hidden_BT in _turns(slots_NT >= 0):
        slots_M = slots_NT[rows_B][hidden_BT]
        masked_BT = blocks_NT[rows_B].masked_fill(hidden_BT, encoder.vocabulary.special.mask).to(device)
        places_M = hidden_BT.flatten().nonzero().flatten().to(device)
        for depth, states_BTD in encoder.hidden_states(masked_BT, depths).items():
            sums[depth].index_add_(0, slots_M, states_BTD.flatten(0, 1)[places_M].double().cpu())
    counts_K = slots_NT[slots_NT >= 0].bincount(minlength=len(ids_K))
    return {depth: (sums_KD / counts_K[:, None]).float() for depth, sums_KD in sums.items()}


def _first(slots_NT: Tensor, pieces: int) -> Tensor:
    """Keep only the first `OCCURRENCES` of each slot, with -1 in place of the others."""
    slots_M = slots_NT.flatten()
    order_M = slots_M.argsort(stable=True)
    counts_K = slots_M[slots_M >= 0].bincount(minlength=pieces)
    starts_K = counts_K.cumsum(0) - counts_K + (slots_M < 0).sum()
    sorted_M = slots_M[order_M]
    rank_M = torch.arange(len(order_M)) - starts_K[sorted_M.clamp(min=0)]
    left_M = torch.full_like(slots_M, -1)
    left_M[order_M] = sorted_M.where(rank_M < OCCURRENCES, -1)
    return left_M.view_as(slots_NT)


def _turns(wanted_NT: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows (B) and masks (B, T) that together hide each wanted place once, few of a block at a time."""
    most = max(1, wanted_NT.shape[1] // _MASKED_EVERY)
    turns_N = wanted_NT.sum(1).div(most, rounding_mode="trunc") + (wanted_NT.sum(1) % most > 0)
    turn_NT = (wanted_NT.cumsum(1) - 1) % turns_N.clamp(min=1)[:, None]
    for turn in range(int(turns_N.max())):
        for rows_B in (turns_N > turn).nonzero().flatten().split(_BATCH):
            yield rows_B, wanted_NT[rows_B] & (turn_NT[rows_B] == turn)

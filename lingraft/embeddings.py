"""A language's embeddings: how target rows are initialised, and the swap into a body."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lingraft.encoder import INITIAL_STD, Encoder, Vocabulary
from lingraft.pieces import SpecialIds
from lingraft.tokenizer import OWN_IDS, SPECIAL_PIECES


@dataclass(frozen=True)
class Initialised:
    """Rows for a new vocabulary, before any training."""

    table_VD: Tensor
    bias_V: Tensor
    copied: int
    """Pieces that the source vocabulary also has, special tokens included."""


def initialise(
    source_table_VD: Tensor,
    source_bias_V: Tensor,
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    copy_overlap: bool,
    generator: torch.Generator,
) -> Initialised:
    """Draw rows from N(0, 0.02); copy those of shared pieces from the source (paper, footnote 1).

    Special tokens are shared by role, and are copied in either case. The bias is copied with its row and is 0 for
    the rest.

    Args:
        source_table_VD: the primary's table.
        source_bias_V: the primary's output bias.
        source_pieces: surface of the source's ids.
        target_pieces: surface of the target's ids.
        copy_overlap: False leaves all but the special tokens random.
        generator: the only source of randomness.
    """
    width = source_table_VD.shape[1]
    table_VD = torch.empty(len(target_pieces), width).normal_(std=INITIAL_STD, generator=generator)
    bias_V = torch.zeros(len(target_pieces))
    rows = overlap(source_pieces, target_pieces if copy_overlap else target_pieces[: len(SPECIAL_PIECES)])
    targets, sources = (torch.tensor(column) for column in zip(*rows, strict=True))
    table_VD[targets], bias_V[targets] = source_table_VD[sources], source_bias_V[sources]
    return Initialised(table_VD, bias_V, len(rows))


def overlap(source_pieces: Sequence[str], target_pieces: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs (target id, source id) of pieces with the same surface."""
    source_ids = {piece: index for index, piece in enumerate(source_pieces)}
    return [(index, source_ids[piece]) for index, piece in enumerate(target_pieces) if piece in source_ids]


def swap(encoder: Encoder, vocabulary: Vocabulary) -> Vocabulary:
    """Put another language's vocabulary into a body, in place; returns the one that was there (section 2, step 4).

    Swapping back restores the logits bit for bit. Whether the two belong together is for the caller to check
    (`artifact.require_aligned`).
    """
    previous, encoder.vocabulary = encoder.vocabulary, vocabulary
    return previous


def vocabulary_of(table_VD: Tensor, bias_V: Tensor, special: SpecialIds = OWN_IDS) -> Vocabulary:
    """A vocabulary that holds the tensors given, with its special pieces at the ids given."""
    vocabulary = Vocabulary(0, table_VD.shape[1], special)
    vocabulary.table_VD = torch.nn.Parameter(table_VD)
    vocabulary.bias_V = torch.nn.Parameter(bias_V)
    return vocabulary

"""The swap: another language's embeddings in a body."""

import torch
from torch import Tensor

from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SpecialIds
from lingraft.model.encoder import BorrowedRows, Encoder, Vocabulary


def swap(encoder: Encoder, vocabulary: Vocabulary) -> Vocabulary:
    """Put another language's vocabulary into a body, in place; returns the one that was there (section 2, step 4).

    Swapping back restores the logits bit for bit. Whether the two belong together is for the caller to check
    (`artifact.require_aligned`).
    """
    previous, encoder.vocabulary = encoder.vocabulary, vocabulary
    return previous


def make_vocabulary(
    table_VD: Tensor, bias_V: Tensor, special: SpecialIds = DEFAULT_SPECIAL_IDS, borrowed: BorrowedRows | None = None
) -> Vocabulary:
    """A vocabulary that holds the tensors given, with its special pieces at the ids given."""
    vocabulary = Vocabulary(0, table_VD.shape[1], special)
    vocabulary.table_VD = torch.nn.Parameter(table_VD)
    vocabulary.bias_V = torch.nn.Parameter(bias_V)
    vocabulary.borrowed = borrowed
    return vocabulary

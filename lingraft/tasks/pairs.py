"""Inputs of an encoder from one text or two: special tokens by role, segments, truncation, padding; and from words.

Legend: B batch, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor  # the endpoint encodes texts without PyTorch, which takes seconds to import


@dataclass(frozen=True)
class Encoded:
    """Texts, or pairs of texts, as token ids."""

    rows: list[list[int]]
    """Ids with special tokens, cut to a block."""
    types: list[list[int]] | None
    """Segment of each token: 1 in a pair's second text and its end. None where the family has one segment or none."""
    whole_tokens: list[int]
    """Number of tokens that each would have uncut, special tokens included."""

    @property
    def truncated(self) -> int:
        """Number of texts or pairs that were cut."""
        return sum(whole > len(row) for whole, row in zip(self.whole_tokens, self.rows, strict=True))


def encode(texts: Sequence[tuple[str, ...]], tokenizer: Tokenizer, shape: EncoderShape) -> Encoded:
    """Tokenize texts as begin a end, and pairs as begin a end end b end (RoBERTa) or begin a end b end (BERT).

    An input that is longer than a block loses the end of its text; of a pair, the longer text is cut first.
    """
    pieces = iter(tokenizer.encode_all([text for some in texts for text in some]))
    ids = [[next(pieces) for _ in some] for some in texts]
    between = [tokenizer.special.end] * shape.family.separators
    rows, types = [], []
    for parts in ids:
        first, *second = _cut(parts, shape.block_tokens - _special_tokens(parts, shape))
        opening = [tokenizer.special.begin, *first, *(between if second else ())]
        closing = [*(second[0] if second else ()), tokenizer.special.end]
        rows.append(opening + closing)
        types.append([0] * len(opening) + [1 if second else 0] * len(closing))
    whole_tokens = [sum(map(len, parts)) + _special_tokens(parts, shape) for parts in ids]
    return Encoded(rows, types if shape.family.marks_second_text else None, whole_tokens)


def _special_tokens(parts: Sequence[object], shape: EncoderShape) -> int:
    return 2 + shape.family.separators * (len(parts) - 1)


def _cut(parts: list[list[int]], room: int) -> list[list[int]]:
    """Cut texts to `room` tokens at most; the longer of two is cut first, as the library tokenizers does it."""
    if len(parts) == 1:
        return [parts[0][:room]]
    first, second = map(len, parts)
    if first + second <= room:
        return parts
    shorter = min(first, second, room // 2)
    kept = (shorter, room - shorter) if first <= second else (room - shorter, shorter)
    return [part[:length] for part, length in zip(parts, kept, strict=True)]


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> "tuple[Tensor, Tensor]":
    """Return ids (B, T) padded to the longest row, and True (B, T) where a token stands."""
    import torch

    lengths_B1 = torch.tensor([[len(row)] for row in rows])
    longest = int(lengths_B1.max())
    tokens_BT = torch.tensor([[*row, *[pad_id] * (longest - len(row))] for row in rows])
    return tokens_BT, torch.arange(longest) < lengths_B1


def pad_types(types: Sequence[Sequence[int]] | None) -> "Tensor | None":
    """Pad segments (B, T) with the first one; None stays None."""
    return None if types is None else pad(types, 0)[0]


def word_pieces(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Return the pieces of each word inside a sentence; one unknown piece where the tokenizer leaves nothing."""
    # The space makes byte-BPE's pieces those of a word's beginning; the others put their own mark there anyway.
    return [ids or [tokenizer.special.unknown] for ids in tokenizer.encode_all([f" {word}" for word in words])]

"""Types for a tokenizer's pieces, whatever kind of tokenizer it is."""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Each = TypeVar("Each", int, str)


class SpecialPieces(NamedTuple, Generic[Each]):
    """A value for each special piece, by its role, which is what two vocabularies have in common."""

    begin: Each
    pad: Each
    end: Each
    unknown: Each
    mask: Each


SpecialIds = SpecialPieces[int]
DEFAULT_SPECIAL_IDS: SpecialIds = SpecialPieces(begin=0, pad=1, end=2, unknown=3, mask=4)
SPECIAL_PIECES: SpecialPieces[str] = SpecialPieces("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""Special pieces of tokenizers that Lingraft trains."""


class Surface(NamedTuple):
    """Text of a piece, comparable across kinds of tokenizers."""

    text: str
    """Decoded text, without marks of a word's beginning or continuation."""
    initial: bool | None
    """Whether the piece begins a word; None if its tokenizer does not distinguish that."""


SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
"""Mark of a space in SentencePiece, and so of a word's beginning."""


@dataclass(frozen=True)
class OwnPieces:
    """A tokenizer's pieces without those that it borrows: what rows are made for."""

    special: SpecialIds
    known: list[Surface | None]

    def __len__(self) -> int:
        return len(self.known)

    def surfaces(self) -> list[Surface | None]:
        """Return the surface of every id; None for special pieces and for those that are no text by themselves."""
        return self.known


class PieceSpans(NamedTuple):
    """Ids of a text's pieces, with their offsets in characters of the original text."""

    ids: list[int]
    starts: list[int]
    ends: list[int]
    """Offsets behind the last character of each piece."""

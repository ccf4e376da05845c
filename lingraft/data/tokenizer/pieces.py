"""What a tokenizer's pieces are, whichever library cuts the text."""

from typing import Generic, NamedTuple, TypeVar

Each = TypeVar("Each", int, str)


class SpecialPieces(NamedTuple, Generic[Each]):
    """Something of every special piece, by role: what is matched where two vocabularies meet."""

    begin: Each
    pad: Each
    end: Each
    unknown: Each
    mask: Each


SpecialIds = SpecialPieces[int]


class Surface(NamedTuple):
    """How a piece reads, so that pieces of different kinds of tokenizers compare."""

    text: str
    """Decoded text, without any mark of the word's beginning or continuation."""
    initial: bool | None
    """Whether the piece begins a word; None where its tokenizer has no other form of it, and so does not tell."""


SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
"""SentencePiece's mark of a space, and so of a word's beginning."""


def marked_surface(piece: str) -> Surface:
    """How a piece with SentencePiece's mark reads."""
    return Surface(piece.removeprefix(SPACE_MARK).replace(SPACE_MARK, " "), piece.startswith(SPACE_MARK))


class PieceSpans(NamedTuple):
    """Pieces of a text with the places they come from, in characters of the text as it was given."""

    ids: list[int]
    starts: list[int]
    ends: list[int]
    """One behind the last character."""

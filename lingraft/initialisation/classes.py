"""Ways to initialise a language's rows, and the classes that pieces are counted by. Needs no PyTorch."""

import unicodedata
from enum import StrEnum
from typing import Protocol

from lingraft.pieces import SpecialIds, Surface


class Initialisation(StrEnum):
    """Where the rows of a language's pieces start from; special pieces are copied by role in every case."""

    OVERLAP = "overlap"
    """Rows of pieces that the source has too are copied, the rest are drawn from N(0, 0.02) (paper, footnote 1)."""
    RANDOM = "random"
    """All rows but the special ones are drawn from N(0, 0.02)."""
    FITTED = "fitted"
    """As overlap, but the rest are drawn around what a fit to the source's rows expects of pieces of their kind."""
    ALIGNED = "aligned"
    """Rows are weighted means of the source's rows that mean the same, found by parallel text, a dictionary or text."""

    @property
    def needs_text(self) -> bool:
        """Whether rows follow from text, and not from the primary, the tokenizer and a seed alone."""
        return self is Initialisation.ALIGNED


class Pieces(Protocol):
    """What is asked of a tokenizer here."""

    @property
    def special(self) -> SpecialIds:
        """Ids of the special pieces, by role."""

    def __len__(self) -> int: ...

    def surfaces(self) -> list[Surface | None]:
        """How every id reads; None for special pieces and those that are no text by themselves."""


class PieceClass(StrEnum):
    """What kind of text a piece is."""

    SPECIAL = "special"
    INITIAL = "letters at the beginning of a word"
    CONTINUATION = "letters inside a word"
    DIGITS = "digits"
    OTHER = "punctuation, symbols and spaces"
    NO_TEXT = "no text by itself"


def classes_of(pieces: Pieces) -> list[PieceClass]:
    """Class of every id."""
    special = set(pieces.special)
    surfaces = enumerate(pieces.surfaces())
    return [PieceClass.SPECIAL if index in special else class_of(surface) for index, surface in surfaces]


def class_of(surface: Surface | None) -> PieceClass:
    """Class of a piece that is not special."""
    if surface is None:
        return PieceClass.NO_TEXT
    if any(is_letter(character) for character in surface.text):
        return PieceClass.INITIAL if surface.initial else PieceClass.CONTINUATION
    return PieceClass.DIGITS if any(map(str.isnumeric, surface.text)) else PieceClass.OTHER


def is_letter(character: str) -> bool:
    """Whether it is a letter or a mark on one; many vowels of Indian and Thai scripts are marks."""
    return unicodedata.category(character)[0] in "LM"

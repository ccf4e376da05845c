"""The classes that pieces are counted by. Needs no PyTorch."""

import unicodedata
from enum import StrEnum
from typing import Protocol

from lingraft.data.tokenizer.pieces import SpecialIds, Surface


class Pieces(Protocol):
    """Part of a tokenizer that initialisation needs."""

    @property
    def special(self) -> SpecialIds:
        """Ids of the special pieces, by role."""

    def __len__(self) -> int: ...

    def surfaces(self) -> list[Surface | None]:
        """Text of every id; None for special pieces and those that are no text by themselves."""


class PieceClass(StrEnum):
    """Kind of text that a piece is."""

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

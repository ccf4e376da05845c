"""What a tokenizer's pieces are, whichever library cuts the text."""

from typing import Generic, NamedTuple, TypeVar

Each = TypeVar("Each", int, str)


class ByRole(NamedTuple, Generic[Each]):
    """Something of every special piece, by role: what is matched where two vocabularies meet."""

    begin: Each
    pad: Each
    end: Each
    unknown: Each
    mask: Each


SpecialIds = ByRole[int]


class Surface(NamedTuple):
    """How a piece reads, so that pieces of different kinds of tokenizers compare."""

    text: str
    """Decoded text, without any mark of the word's beginning or continuation."""
    initial: bool | None
    """Whether the piece begins a word; None where its tokenizer has no other form of it, and so does not tell."""


class Spans(NamedTuple):
    """Pieces of a text with the places they come from, in characters of the text as it was given."""

    ids: list[int]
    starts: list[int]
    ends: list[int]
    """One behind the last character."""

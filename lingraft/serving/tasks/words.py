"""Words of a text as the data sets of named entities have them, with their places in the text.

PAN-X and CoNLL divide a text at white space, take punctuation around a word as words of its own, leave it inside a word
("R.H.", "d'Ivoire"), and, in scripts that write no spaces, make a word of each Chinese character.
"""

import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from lingraft.tasks.squad_windows import is_blank

_IDEOGRAPHS = ("CJK UNIFIED", "CJK COMPAT", "HIRAGANA", "KATAKANA")


class Word(NamedTuple):
    """Characters `start` to `end` - 1 of a text."""

    start: int
    end: int


def words(text: str) -> list[Word]:
    """The words of a text; what cannot be seen at their edges, such as a mark of direction, belongs to none."""
    return [word for start, end in _runs(text) for word in _divided(text, start, end)]


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """Runs without white space; an ideograph is one by itself."""
    start = 0
    for place, character in enumerate(text):
        if character.isspace() or _is_ideograph(character):
            yield start, place
            start = place + 1
            if not character.isspace():
                yield place, start
    yield start, len(text)


def _divided(text: str, start: int, end: int) -> Iterator[Word]:
    """Punctuation at the edges of a run, each mark by itself, and the word between."""
    first = start
    last = end
    while first < last and _is_edge(text[first]):
        first += 1
    while last > first and _is_edge(text[last - 1]):
        last -= 1
    if last < end and text[last] == "." and "." in text[first:last]:
        last += 1
    yield from _marks(text, start, first)
    if first < last:
        yield Word(first, last)
    yield from _marks(text, last, end)


def _marks(text: str, start: int, end: int) -> Iterator[Word]:
    return (Word(place, place + 1) for place in range(start, end) if not is_blank(text[place]))


def _is_edge(character: str) -> bool:
    return unicodedata.category(character)[0] in "PSC"


def _is_ideograph(character: str) -> bool:
    return ord(character) > 0x2FFF and unicodedata.name(character, "").startswith(_IDEOGRAPHS)

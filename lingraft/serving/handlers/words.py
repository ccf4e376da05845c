"""Words of a text as the data sets of named entities divide it.

PAN-X and CoNLL divide a text at white space, take punctuation around a word as words of its own, leave it inside a word
("R.H.", "d'Ivoire"), and, in scripts that write no spaces, make a word of each Chinese character.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from lingraft.tasks.squad_windows import is_blank

_IDEOGRAPHS = (
    "\u3041-\u3096\u309b-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"[{_IDEOGRAPHS}]|[^\s{_IDEOGRAPHS}]+")


class Word(NamedTuple):
    """Characters `start` to `end` - 1 of a text."""

    start: int
    end: int


def words(text: str) -> list[Word]:
    """Return the words of a text; invisible characters at their edges, such as direction marks, belong to none."""
    return [word for run in _RUN.finditer(text) for word in _split_run(text, *run.span())]


def _split_run(text: str, start: int, end: int) -> Iterator[Word]:
    """Yield each punctuation mark at the edges of a run, and the word between them."""
    first, last = start, end
    while first < last and _is_punctuation(text[first]):
        first += 1
    while last > first and _is_punctuation(text[last - 1]):
        last -= 1
    if last < end and text[last] == "." and "." in text[first:last]:
        last += 1
    yield from _marks(text, start, first)
    if first < last:
        yield Word(first, last)
    yield from _marks(text, last, end)


def _marks(text: str, start: int, end: int) -> Iterator[Word]:
    return (Word(place, place + 1) for place in range(start, end) if not is_blank(text[place]))


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PSC"

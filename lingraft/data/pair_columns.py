"""Names of columns and keys that say which side of a pair they hold: source and target, or the two languages."""

import re
from collections.abc import Sequence
from functools import lru_cache

from lingraft.data.languages import is_variety, names_of

Languages = tuple[str, str]
"""Tags of the source and the target."""
_OF_SIDES = (
    {"source", "src", "original", "sentence1", "text1", "anchor"},
    {"target", "tgt", "trg", "translation", "translated", "sentence2", "text2", "positive", "non english"},
)
_NUMBERS = {"1"}, {"2"}
_TEXT = {"text", "texts", "sentence", "sentences", "segment", "column", "lang", "language"}
"""Words beside that of the side, as in 'source_text' and 'sentence_en'."""
_LONGEST_NAME = 40


@lru_cache
def find_sides(names: tuple[str, ...], languages: Languages) -> tuple[int, int] | None:
    """Return the places of the source's and the target's side among names of columns; None unless both are there.

    Names of the languages go before others: beside 'en' and 'de', 'source' says where a pair is from.
    """
    by_language = [{n for n, name in enumerate(names) if _names_language(name, tag, languages)} for tag in languages]
    by_side = [{n for n, name in enumerate(names) if _names_side(name, side)} for side in (0, 1)]
    either = [by_language[side] | by_side[side] for side in (0, 1)]
    for sources, targets in (by_language, by_side, either):
        if found := sorted((i, j) for i in sources for j in targets if i != j):
            return found[0]
    return None


def column_names(names: Sequence[str]) -> str:
    """Return what is left out as a line of column names, for counts."""
    return f"line of column names ({' and '.join(repr(name.strip()) for name in names)})"


def _names_language(name: str, tag: str, languages: Languages) -> bool:
    rest = [word for word in _words(name) if word not in _TEXT]
    if not rest:
        return False
    named = names_of(tag, languages)
    return is_variety(name.strip(), tag) or " ".join(rest) in named or (len(rest) == 1 and is_variety(rest[0], tag))


def _names_side(name: str, side: int) -> bool:
    words = _words(name)
    rest = [word for word in words if word not in _TEXT]
    if not rest:
        return bool(words) and side == 0
    return " ".join(rest) in _OF_SIDES[side] or (rest != words and set(rest) == _NUMBERS[side])


def _words(name: str) -> list[str]:
    return re.findall(r"\w+", name.casefold().replace("_", " ")) if len(name) <= _LONGEST_NAME else []

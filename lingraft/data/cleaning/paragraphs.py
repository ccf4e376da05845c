"""Cleaning of a paragraph: normalised characters, and tests of whether it is running text.

Invisible characters go, white space becomes single spaces, and the text one Unicode form. A paragraph is dropped by its
length, its shares of digits and symbols, and its repetition.
"""

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Container

from lingraft.config.text import Cleaning
from lingraft.data.cleaning.corpus_stats import INVISIBLE, NORMALISED, WHITE_SPACE, CleaningCounts

_JOINERS = "\u200c\u200d"
_STRAY_JOINER = re.compile(
    # Arabic, Indic and other scripts spell with a joiner after a letter: Urdu, Persian, Hindi, Malayalam.
    rf"(?<![\u0600-\u0dff\u1000-\u109f\u1780-\u1cff\ua800-\uaaff\U00011000-\U00011fff])[{_JOINERS}]"
)
_SIGNS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Signs, such as Arabic's end of verse, that Unicode counts among the format characters."""
TOO_SHORT, TOO_LONG, DIGITS, SYMBOLS, REPETITION = (
    "too short",
    "too long",
    "digits",
    "punctuation and symbols",
    "repetition",
)
_WORDS, _CHARACTERS = 3, 8
"""Lengths of the n-grams that are searched for repetition, in words and in characters."""
_FEWEST = 3
"""Fewest occurrences that count as repetition; people say things twice."""
_LONGEST_MEAN_WORD = 16
"""Longest mean length of words; above it, spaces do not separate words, as in Thai, Chinese or no language."""


def normalise(paragraph: str, characters: CleaningCounts) -> str:
    """Return the paragraph without invisible characters, with single spaces, in Unicode's form NFC; perhaps empty.

    Args:
        paragraph: a line.
        characters: counts the characters removed, by reason, but not those kept; the count of normalisation is
            negative where it adds characters.
    """
    seen = paragraph if paragraph.isprintable() else _without_invisible(paragraph)
    spaced = " ".join(seen.split())
    normal = spaced if spaced.isascii() else unicodedata.normalize("NFC", spaced)
    if normal != paragraph:
        characters.drop(INVISIBLE, len(paragraph) - len(seen))
        characters.drop(WHITE_SPACE, len(seen) - len(spaced))
        characters.drop(NORMALISED, len(spaced) - len(normal))
    return normal


def _without_invisible(paragraph: str) -> str:
    """Remove control, format, private-use, unassigned and surrogate characters, but no white space."""
    for character in set(paragraph) - _SIGNS - set(_JOINERS):
        if not character.isprintable() and not character.isspace():
            paragraph = paragraph.replace(character, "")
    return _STRAY_JOINER.sub("", paragraph)


def reject_reason(paragraph: str, settings: Cleaning) -> str | None:
    """Return why a paragraph is to be dropped, or None if it is to be kept."""
    length = len(paragraph)
    if length < settings.min_characters:
        return TOO_SHORT
    if length > settings.max_characters:
        return TOO_LONG
    if reason := _too_few_letters(paragraph, settings):
        return reason
    return REPETITION if _repeats(paragraph, settings.max_repetition_share) else None


_EMOJI = "\U0001f000-\U0001fbff"


@functools.cache
def _signs() -> dict[str, re.Pattern[str]]:
    digits, symbols = {"Nd", "Nl", "No"}, {"Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So"}
    classes = {DIGITS: _class_of(digits), SYMBOLS: _class_of(symbols) + _EMOJI}
    classes[""] = "".join(classes.values())
    return {reason: re.compile(f"[{members}]") for reason, members in classes.items()}


def _class_of(categories: Container[str]) -> str:
    r"""Return the characters of Unicode categories, escaped for a regular expression's [...].

    Only the basic plane is covered: a class that reaches beyond it in many places is searched twenty times slower.
    """
    members = [chr(point) for point in range(0x10000) if unicodedata.category(chr(point)) in categories]
    return re.escape("".join(members))


def _too_few_letters(paragraph: str, settings: Cleaning) -> str | None:
    limits = {DIGITS: settings.max_digit_share, SYMBOLS: settings.max_symbol_share}
    # Most paragraphs have few of either, and are looked through once.
    if _share("", paragraph) <= min(limits.values()):
        return None
    return next((reason for reason, limit in limits.items() if _share(reason, paragraph) > limit), None)


def _share(signs: str, paragraph: str) -> float:
    return len(_signs()[signs].findall(paragraph)) / len(paragraph)


def _repeats(paragraph: str, limit: float) -> bool:
    """Whether the most frequent n-gram, occurring three times or more, covers more than `limit` of the paragraph."""
    words = paragraph.split(" ")
    if len(paragraph) > _LONGEST_MEAN_WORD * len(words):
        grams = Counter(paragraph[start : start + _CHARACTERS] for start in range(len(paragraph) - _CHARACTERS + 1))
        return _covers(grams, _CHARACTERS, len(paragraph), limit)
    # An n-gram is no more frequent than its words.
    if not _covers(Counter(words), _WORDS, len(words), limit):
        return False
    return _covers(Counter(zip(words, words[1:], words[2:], strict=False)), _WORDS, len(words), limit)


def _covers(counts: Counter[str] | Counter[tuple[str, str, str]], size: int, length: int, limit: float) -> bool:
    most = max(counts.values(), default=0)
    return most >= _FEWEST and most * size > limit * length

"""Cleaning of documents: paragraphs are normalised, and those that are of no use or came before are dropped.

Invisible characters go, white space becomes single spaces, and the text one Unicode form. A paragraph is dropped by its
length, its shares of digits and symbols, its repetition, or because it came before.
"""

import functools
import hashlib
import re
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace

from lingraft.config.text import Cleaning
from lingraft.data.documents import Document

EMPTY, NOTHING_LEFT = "empty document", "nothing left of document"
DUPLICATE, INVISIBLE = "paragraph: duplicate", "paragraph: invisible characters"
_JOINERS = "\u200c\u200d"
_STRAY_JOINER = re.compile(
    # Arabic, Indic and other scripts spell with a joiner after a letter: Urdu, Persian, Hindi, Malayalam.
    rf"(?<![\u0600-\u0dff\u1000-\u109f\u1780-\u1cff\ua800-\uaaff\U00011000-\U00011fff])[{_JOINERS}]"
)
_SIGNS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Signs, such as Arabic's end of verse, that Unicode counts among the format characters."""
TOO_SHORT, TOO_LONG, DIGITS, SYMBOLS, REPETITION = (
    f"paragraph: {reason}" for reason in ("too short", "too long", "digits", "punctuation and symbols", "repetition")
)
_WORDS, _CHARACTERS = 3, 8
"""Lengths of the n-grams that are searched for repetition, in words and in characters."""
_FEWEST = 3
"""Fewest occurrences that count as repetition; people say things twice."""
_KEY_BYTES = 16
"""Bytes of a paragraph's BLAKE2b key. Any two of 10^12 different paragraphs share one with probability 10^-15."""
_LONGEST_MEAN_WORD = 16
"""Longest mean length of words; above it, spaces do not separate words, as in Thai, Chinese or no language."""


class SeenParagraphs:
    """Keys of the paragraphs so far, in a temporary database of SQLite, which is on disk once it is large."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("")
        self._database.execute("CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID")

    def add(self, paragraph: str) -> bool:
        """Add a paragraph, and return whether it is new."""
        key = hashlib.blake2b(paragraph.encode(), digest_size=_KEY_BYTES).digest()
        return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (key,)).rowcount == 1


def clean_documents(
    documents: Iterable[Document], cleaning: Cleaning | None, dropped: Counter[str]
) -> Iterator[Document]:
    """Yield documents as a text artifact has them, in their order."""
    seen = SeenParagraphs() if cleaning else None
    for document in documents:
        text = document.text
        if cleaning:
            lines = (_clean_line(line, cleaning, dropped, seen) for line in text.split("\n"))
            text = "\n".join(filter(None, lines))
        if text:
            yield replace(document, text=text)
        else:
            dropped[NOTHING_LEFT if document.text else EMPTY] += 1


def _clean_line(line: str, cleaning: Cleaning, dropped: Counter[str], seen: SeenParagraphs | None) -> str | None:
    """Return a line as it is to be kept; None if it is to be dropped."""
    if not line.strip():
        return None
    paragraph = normalise(line)
    reason = reject_reason(paragraph, cleaning) if paragraph else INVISIBLE
    if not reason and seen and not seen.add(paragraph):
        reason = DUPLICATE
    if reason:
        dropped[reason] += 1
        return None
    return paragraph


def normalise(paragraph: str) -> str:
    """Return the paragraph without invisible characters, with single spaces, in Unicode's form NFC; perhaps empty."""
    seen = paragraph if paragraph.isprintable() else _without_invisible(paragraph)
    spaced = " ".join(seen.split())
    return spaced if spaced.isascii() else unicodedata.normalize("NFC", spaced)


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

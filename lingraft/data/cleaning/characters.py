"""Normalisation of a paragraph's characters: no invisible ones, single spaces, one Unicode form."""

import re
import unicodedata

from lingraft.config.text import UnicodeForm
from lingraft.data.cleaning.corpus_stats import INVISIBLE, NORMALISED, WHITE_SPACE, CleaningCounts

_JOINERS = "\u200c\u200d"
_STRAY_JOINER = re.compile(
    # Arabic, Indic and other scripts spell with a joiner after a letter: Urdu, Persian, Hindi, Malayalam.
    rf"(?<![\u0600-\u0dff\u1000-\u109f\u1780-\u1cff\ua800-\uaaff\U00011000-\U00011fff])[{_JOINERS}]"
)
_SIGNS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Signs, such as Arabic's end of verse, that Unicode counts among the format characters."""


def normalise(paragraph: str, form: UnicodeForm, characters: CleaningCounts) -> str:
    """Return the paragraph without invisible characters, with single spaces, in one Unicode form; perhaps empty.

    Args:
        paragraph: a line.
        form: Unicode's normal form, or "none".
        characters: counts the characters removed, by reason, but not those kept; the count of normalisation is
            negative where it adds characters.
    """
    seen = paragraph if paragraph.isprintable() else _without_invisible(paragraph)
    spaced = " ".join(seen.split())
    normal = spaced if form == "none" or spaced.isascii() else unicodedata.normalize(form, spaced)
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

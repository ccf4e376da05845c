"""A paragraph's characters: none that nobody can see, single spaces, one Unicode form."""

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
    """The paragraph as it is to be read, perhaps empty.

    Args:
        paragraph: a line.
        form: Unicode's normal form, or "none".
        characters: counts those that go, by reason, and not those that are left; normalisation's count is below 0
            where it adds some.
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
    """Control, format, private, unassigned and half characters are removed; white space is not."""
    for character in set(paragraph) - _SIGNS - set(_JOINERS):
        if not character.isprintable() and not character.isspace():
            paragraph = paragraph.replace(character, "")
    return _STRAY_JOINER.sub("", paragraph)

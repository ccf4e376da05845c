"""Languages in the Unicode CLDR: their English names, for pages and tables that people read, and their codes."""

from functools import cache
from typing import TYPE_CHECKING

from lingraft.errors import MissingExtraError

if TYPE_CHECKING:
    from babel import Locale

_NO_LANGUAGES = {"mis", "mul", "und", "zxx"}
"""Codes for text of several languages, of none, or of one that is not known."""


def language_name(tag: str) -> str:
    """The English name of a language, such as "German" for "de" and "Portuguese (Brazil)" for "pt-BR".

    Args:
        tag: BCP 47 tag. A language that the Unicode CLDR does not know keeps its tag as its name.

    Raises:
        MissingExtraError: Babel is not installed.
    """
    english = _english()
    language, *subtags = tag.split("-")
    if language not in english.languages:
        return tag
    details = [english.scripts.get(each.title()) or english.territories.get(each.upper()) or each for each in subtags]
    name = str(english.languages[language])
    return f"{name} ({', '.join(details)})" if details else name


def canonical_code(code: str) -> str | None:
    """The code of a language in the Unicode CLDR, such as "de" for "deu"; None for a code that the CLDR does not know.

    Args:
        code: two or three letters, of ISO 639.

    Raises:
        MissingExtraError: Babel is not installed.
    """
    english = _english()
    from babel.core import get_global

    found = str(get_global("language_aliases").get(code, code))
    return found if found in english.languages and found not in _NO_LANGUAGES else None


def name_and_tag(tag: str) -> str:
    """The name of a language with its tag, such as "German (de)"; a tag without a name alone."""
    name = language_name(tag)
    return tag if name == tag else f"{name} ({tag})"


@cache
def _english() -> "Locale":
    try:
        from babel import Locale
    except ModuleNotFoundError as error:
        raise MissingExtraError("babel", "report") from error
    return Locale("en")

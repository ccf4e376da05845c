"""English names and canonical codes of languages, from the Unicode CLDR."""

from functools import cache
from typing import TYPE_CHECKING

from lingraft.errors import MissingExtraError

if TYPE_CHECKING:
    from babel import Locale

_NO_LANGUAGES = {"mis", "mul", "und", "zxx"}
"""Codes for text in several languages, in none, or in an unknown one."""


def language_name(tag: str) -> str:
    """Return the English name of a language, such as "German" for "de" and "Portuguese (Brazil)" for "pt-BR".

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
    """Return the code of a language in the Unicode CLDR, such as "de" for "deu"; None for an unknown code.

    Args:
        code: ISO 639 code of two or three letters.

    Raises:
        MissingExtraError: Babel is not installed.
    """
    english = _english()
    from babel.core import get_global

    found = str(get_global("language_aliases").get(code, code))
    return found if found in english.languages and found not in _NO_LANGUAGES else None


@cache
def two_letter_codes() -> dict[str, str]:
    """Return the codes of two letters that the Unicode CLDR knows, with the English names of their languages.

    Raises:
        MissingExtraError: Babel is not installed.
    """
    return {code: str(name) for code, name in _english().languages.items() if len(code) == 2}


def name_and_tag(tag: str) -> str:
    """Return a language's name with its tag, such as "German (de)"; only the tag of a language without a name."""
    name = language_name(tag)
    return tag if name == tag else f"{name} ({tag})"


@cache
def _english() -> "Locale":
    try:
        from babel import Locale
    except ModuleNotFoundError as error:
        raise MissingExtraError("babel", "report") from error
    return Locale("en")

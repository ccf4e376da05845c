"""English names of languages, for pages and tables that people read."""

from functools import cache
from typing import TYPE_CHECKING

from lingraft.errors import MissingExtraError

if TYPE_CHECKING:
    from babel import Locale


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

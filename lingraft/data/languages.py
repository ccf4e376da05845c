"""English names and canonical codes of languages, from the Unicode CLDR."""

import contextlib
import difflib
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import pydantic

from lingraft.config.section import Language
from lingraft.console import say
from lingraft.errors import RecipeError

if TYPE_CHECKING:
    from babel import Locale

_NO_LANGUAGES = {"mis", "mul", "und", "zxx"}
"""Codes for text in several languages, in none, or in an unknown one."""
_PRIVATE = re.compile(r"q[a-t][a-z]")
"""Codes that ISO 639 reserves for local use."""
_PRIVATE_SUBTAG = "-x-"
_ALIKE = 0.6
"""Least similarity, by difflib, of a code to one that may be meant."""


def language_name(tag: str) -> str:
    """Return the English name of a language, such as "German" for "de" and "Portuguese (Brazil)" for "pt-BR"."""
    english = _english()
    language, *subtags = tag.split("-")
    if language not in english.languages:
        return tag
    details = [english.scripts.get(each.title()) or english.territories.get(each.upper()) or each for each in subtags]
    name = str(english.languages[language])
    return f"{name} ({', '.join(details)})" if details else name


def canonical_code(code: str) -> str | None:
    """Return the code of a language in the Unicode CLDR, such as "de" for "deu"; None for an unknown code."""
    english = _english()
    from babel.core import get_global

    found = str(get_global("language_aliases").get(code, code))
    return found if found in english.languages and found not in _NO_LANGUAGES else None


@lru_cache
def is_variety(tag: str, language: str) -> bool:
    """Return whether a tag is that of a language, or of a part or variety of it: "pt", "por", "pt_PT" of "pt-BR"."""
    first, *ours = tag.lower().replace("_", "-").split("-")
    second, *theirs = language.lower().split("-")
    common = min(len(ours), len(theirs))
    return (canonical_code(first) or first) == (canonical_code(second) or second) and ours[:common] == theirs[:common]


def language_and_script(tag: str) -> tuple[str, str]:
    """Return the subtags of a tag's language and script in lower case: "sr" and "latn" of "sr-Latn-RS", "en" and ""."""
    language, *others = tag.lower().split("-")
    return language, next((each for each in others if len(each) == 4 and each.isalpha()), "")


@cache
def names_of(tag: str, spoken: tuple[str, ...]) -> frozenset[str]:
    """Return a language's names in English and in some languages, in lower case: "german", "deutsch" for "de"."""
    from babel import Locale, UnknownLocaleError

    code, found = tag.split("-")[0], set[str]()
    for each in ("en", *spoken):
        with contextlib.suppress(UnknownLocaleError, ValueError):
            found.add(str(Locale(each.split("-")[0]).languages.get(code, "")).casefold())
    return frozenset(found - {""})


def require_tag(tag: str) -> None:
    """Refuse what is no BCP 47 tag, and say which is meant by the name of a language."""
    try:
        pydantic.TypeAdapter(Language).validate_python(tag)
    except pydantic.ValidationError as error:
        codes = [str(code) for code in _english().languages]
        named = next((code for code in codes if tag.casefold() in names_of(code, (code,))), None)
        meant = f" Is {named!r} meant?" if named else ""
        raise RecipeError(f"language {tag!r} is no BCP 47 tag. Give one such as 'de' or 'pt-BR'.{meant}") from error


def warn_of_unknown_codes(tags: Iterable[str]) -> None:
    """Say which tags have codes of no language that the Unicode CLDR knows, and which codes may be meant.

    It knows some 600 of the 8,000 languages that have codes, so that an unknown one is no error. Private codes, such as
    "qaa" or those behind "-x-", pass.
    """
    for tag in tags:
        code = tag.split("-")[0]
        private = _PRIVATE.fullmatch(code) or _PRIVATE_SUBTAG in tag
        if not private and canonical_code(code) is None:
            say(
                f"{tag!r} is no code of a language that the Unicode CLDR knows, and is taken as it is."
                f"{_meant(code)} Codes are those of ISO 639, such as 'de' or 'swh'; for one of your own take 'qaa' "
                "to 'qtz'."
            )


def _meant(code: str) -> str:
    """Return a question about the code that may be meant: that of a country's language, as "jp", or a similar one."""
    from babel.languages import get_official_languages

    codes = [each for each in map(str, _english().languages) if "_" not in each and each not in _NO_LANGUAGES]
    alike = difflib.get_close_matches(code, codes, cutoff=_ALIKE)
    alike.sort(key=lambda each: each[0] != code[0])  # of several that are as alike, one with the same first letter
    found = [*get_official_languages(code.upper()), *alike]
    return f" Is {found[0]!r} ({language_name(found[0])}) meant?" if found else ""


def quoted(tags: Iterable[str]) -> str:
    """Return tags for a sentence, such as "'de', 'it'": without quotes "it" would read as a word; empty for none."""
    return ", ".join(map(repr, tags))


def name_and_tag(tag: str) -> str:
    """Return a language's name with its tag, such as "German (de)"; only the tag of a language without a name."""
    name = language_name(tag)
    return tag if name == tag else f"{name} ({tag})"


@cache
def _english() -> "Locale":
    from babel import Locale  # lazy: not every command names languages

    return Locale("en")

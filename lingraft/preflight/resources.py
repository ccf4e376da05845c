"""Parallel text and dictionaries: there, well-formed, and in the languages of the source and the target.

A file is read for `MAX_SECONDS` at most; what lies behind that is checked when it is read to learn from.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.data.bilingual_dictionary import word_pairs_or_errors
from lingraft.data.language_detection import LanguageDetector
from lingraft.data.parallel_text import Pair, PairOrError, file_names, filter_pairs, pairs_or_errors
from lingraft.errors import LingraftError, TextError
from lingraft.preflight.languages import other_language
from lingraft.preflight.samples import TextSample

MAX_SECONDS = 30.0
_SAMPLED = 2000
_LOOKED_UP = 300


@dataclass
class PairScan:
    """A file, or two, as far as they were read."""

    origin: str
    errors: list[str] = field(default_factory=list)
    count: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    whole: bool = True
    sample: list[Pair] = field(default_factory=list)
    """Pairs, spread evenly, at most 2 * `_SAMPLED`."""


def resource_problems(
    recipe: Recipe, taken: Mapping[str, TextSample], detector: LanguageDetector | None
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the resources of [alignment], by language; print what is left out of them.

    Args:
        recipe: names the files.
        taken: samples of text by language; the resources of these languages are looked at.
        detector: detector of languages; None: they are not checked.
    """
    parallel = {language: files for language, files in recipe.alignment.parallel.items() if language in taken}
    dictionary = {language: file for language, file in recipe.alignment.dictionary.items() if language in taken}
    for language, files in parallel.items():
        looked = scan_pairs(pairs_or_errors(files), file_names(files))
        yield from (
            (language, message) for message in [*looked.errors, *_language_problems(recipe, language, looked, detector)]
        )
    for language, file in dictionary.items():
        looked = scan_pairs(word_pairs_or_errors(file), file)
        wrong = _language_problems(recipe, language, looked, detector, either_order=True)
        yield from ((language, message) for message in [*looked.errors, *wrong, *_unused(taken[language], looked)])


def scan_pairs(found: Iterator[PairOrError], origin: str) -> PairScan:
    """Read pairs for a bounded time, and go on behind what is none.

    Args:
        found: pairs, or errors in their places.
        origin: their files.
    """
    looked = PairScan(origin)
    stride = 1
    try:
        for pair in filter_pairs(_without_errors(found, looked), origin, looked.left_out):
            if looked.count % stride == 0:
                looked.sample.append(pair)
            looked.count += 1
            if len(looked.sample) > 2 * _SAMPLED:
                looked.sample, stride = looked.sample[::2], 2 * stride
    except TextError as error:
        # Where errors are all that a file holds, that it has no pairs is no news.
        if looked.count or not looked.errors:
            looked.errors.append(str(error))
    if looked.left_out:
        counted = ", ".join(f"{count:,} {reason}" for reason, count in looked.left_out.items())
        say(f"{origin}: {looked.count:,} pairs are read, and left out are {counted}.")
    return looked


def _without_errors(found: Iterator[PairOrError], looked: PairScan) -> Iterator[Pair]:
    end_s = time.monotonic() + MAX_SECONDS
    for each in found:
        if isinstance(each, LingraftError):
            looked.errors.append(str(each))
        else:
            yield each
        if time.monotonic() > end_s:
            looked.whole = False
            return


def _language_problems(
    recipe: Recipe, language: str, looked: PairScan, detector: LanguageDetector | None, either_order: bool = False
) -> Iterator[str]:
    """Yield sides that are in another language than they should be, by most of a sample's parts."""
    if detector is None:
        return
    expected = (recipe.source, language)
    sides = [[pair.source for pair in looked.sample], [pair.target for pair in looked.sample]]
    wrong = [other_language(name, texts, detector) for name, texts in zip(expected, sides, strict=True)]
    if all(wrong) and not all(map(other_language, expected[::-1], sides, [detector] * 2)):
        if not either_order:
            found = [other.language for other in wrong if other]
            yield (
                f"{looked.origin}: the languages are swapped: {found[0]!r} stands where {expected[0]!r} should, and "
                f"{found[1]!r} where {expected[1]!r} should. Give the source language first."
            )
        return
    for side, name, other in zip(("source", "target"), expected, wrong, strict=True):
        if other:
            yield (
                f"{looked.origin}: the {side} side should be in {name!r}, but seems to be in {other.language!r} "
                f"({other.parts} of {other.of_parts} parts of a sample). Give a file of {expected[0]!r} and "
                f"{expected[1]!r}."
            )


def _unused(text: TextSample, looked: PairScan) -> Iterator[str]:
    """That none of a dictionary's words occurs in the language's text, so that no piece could learn from them."""
    joined = "\n".join(chain.from_iterable(text.texts.values())).casefold()
    pairs = looked.sample[:: max(1, len(looked.sample) // _LOOKED_UP)]
    words = [word.casefold() for pair in pairs for word in (pair.source, pair.target) if len(word) > 1]
    if joined and words and not looked.errors and not any(word in joined for word in words):
        yield (
            f"{looked.origin}: none of {len(words):,} words of a sample occurs in the text of {text.language!r}. Give "
            "a dictionary of that language, in the same script."
        )

"""Parallel text and dictionaries: there, well-formed, and in the languages of the source and the target.

A file is read for `SECONDS` at most; what lies behind that is checked when it is read to learn from.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.data.bilingual_dictionary import word_pairs_or_errors
from lingraft.data.language_detection import LanguageDetector
from lingraft.data.parallel_text import Pair, PairOrError, file_names, filter_pairs, pairs_or_errors
from lingraft.errors import LingraftError, MissingExtraError, TextError
from lingraft.preflight.samples import TextSample

MAX_SECONDS = 30.0
_SAMPLED = 2000
_PART_CHARACTERS, _PARTS, _FEWEST_PARTS = 500, 40, 3
_MOST_PARTS = 2 / 3
"""Share of a sample's parts that must seem to be in one other language before it is called the wrong one."""
_ALIKE = ({"no", "nb", "nn", "da"}, {"bs", "hr", "sr"}, {"id", "ms"})
"""Languages that py3langid confuses."""
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
    """At most 2 * `_SAMPLED` pairs, spread evenly."""


class _WrongLanguage(NamedTuple):
    """A side that is not in its language: 0 for the source, 1 for the target."""

    side: int
    expected: str
    found: str
    parts: int
    of_parts: int


def resource_problems(recipe: Recipe, taken: Mapping[str, TextSample]) -> Iterator[tuple[str, str]]:
    """What is wrong with the resources of [alignment], by language; what is left out of them is said.

    Args:
        recipe: names the files.
        taken: samples of text by language; the resources of these languages are looked at.
    """
    parallel = {language: files for language, files in recipe.alignment.parallel.items() if language in taken}
    dictionary = {language: file for language, file in recipe.alignment.dictionary.items() if language in taken}
    detector = _detector() if parallel or dictionary else None
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


def _detector() -> LanguageDetector | None:
    try:
        return LanguageDetector.load()
    except MissingExtraError as error:
        say(f"The languages of parallel text and dictionaries are not checked: {error}")
        return None


def _language_problems(
    recipe: Recipe, language: str, looked: PairScan, detector: LanguageDetector | None, either_order: bool = False
) -> Iterator[str]:
    """Sides that are in another language than they should be, by most of a sample's parts."""
    if detector is None:
        return
    texts = [pair.source for pair in looked.sample], [pair.target for pair in looked.sample]
    names = recipe.source, language
    wrong = _wrong_sides(texts, names, detector)
    turned = _wrong_sides(texts, names[::-1], detector) if len(wrong) == 2 else wrong
    if len(turned) < len(wrong):
        if not either_order:
            yield (
                f"{looked.origin}: the languages are swapped: {wrong[0].found!r} stands where {names[0]!r} should, and "
                f"{wrong[1].found!r} where {names[1]!r} should. Give the source language first."
            )
        return
    for each in wrong:
        side = ("source", "target")[each.side]
        yield (
            f"{looked.origin}: the {side} side should be in {each.expected!r}, but seems to be in {each.found!r} "
            f"({each.parts} of {each.of_parts} parts of a sample). Give a file of {names[0]!r} and {names[1]!r}."
        )


def _wrong_sides(
    texts: Sequence[Sequence[str]], names: Sequence[str], detector: LanguageDetector
) -> list[_WrongLanguage]:
    found = [
        _other(side, name, parts, detector)
        for side, (name, parts) in enumerate(zip(names, map(_parts, texts), strict=True))
    ]
    return [each for each in found if each]


def _other(side: int, name: str, parts: list[str], detector: LanguageDetector) -> _WrongLanguage | None:
    others = Counter(other for part in parts if (other := detector.detect_other(name, part)))
    if len(parts) < _FEWEST_PARTS or not others:
        return None
    [(other, count)] = others.most_common(1)
    alike = any({name.partition("-")[0], other} <= group for group in _ALIKE)
    return None if alike or count < _MOST_PARTS * len(parts) else _WrongLanguage(side, name, other, count, len(parts))


def _parts(texts: Sequence[str]) -> list[str]:
    """Texts of a sample put together to parts that are long enough to tell their language."""
    step = max(1, sum(len(text) + 1 for text in texts) // (_PARTS * _PART_CHARACTERS))
    joined = " ".join(texts[::step])
    starts = range(0, len(joined) - _PART_CHARACTERS // 2, _PART_CHARACTERS)
    return [joined[start : start + _PART_CHARACTERS] for start in starts]


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

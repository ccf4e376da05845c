"""Parallel text and dictionaries: there, well-formed, and in the languages of the source and the target.

A file is read for `SECONDS` at most; what lies behind that is checked when it is read to learn from.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

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
    """Pairs, spread evenly, at most 2 * `_SAMPLED`."""


def resource_problems(recipe: Recipe, taken: Mapping[str, TextSample]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the resources of [alignment], by language; print what is left out of them.

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
    """Yield sides that are in another language than they should be, by most of a sample's parts."""
    if detector is None:
        return
    expected = (recipe.source, language)
    sides = [_parts([pair.source for pair in looked.sample]), _parts([pair.target for pair in looked.sample])]
    wrong = [_other_language(name, parts, detector) for name, parts in zip(expected, sides, strict=True)]
    if all(wrong) and not all(map(_other_language, expected[::-1], sides, [detector] * 2)):
        if not either_order:
            found = [other for other, _ in filter(None, wrong)]
            yield (
                f"{looked.origin}: the languages are swapped: {found[0]!r} stands where {expected[0]!r} should, and "
                f"{found[1]!r} where {expected[1]!r} should. Give the source language first."
            )
        return
    for side, name, parts, other in zip(("source", "target"), expected, sides, wrong, strict=True):
        if other:
            yield (
                f"{looked.origin}: the {side} side should be in {name!r}, but seems to be in {other[0]!r} "
                f"({other[1]} of {len(parts)} parts of a sample). Give a file of {expected[0]!r} and {expected[1]!r}."
            )


def _other_language(name: str, parts: list[str], detector: LanguageDetector) -> tuple[str, int] | None:
    """Return the one other language that most parts seem to be in, and how many; None if they may well be in `name`."""
    others = Counter(other for part in parts if (other := detector.detect_other(name, part)))
    if len(parts) < _FEWEST_PARTS or not others:
        return None
    [(other, count)] = others.most_common(1)
    alike = any({name.partition("-")[0], other} <= group for group in _ALIKE)
    return None if alike or count < _MOST_PARTS * len(parts) else (other, count)


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

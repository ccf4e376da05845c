"""Parallel text and dictionaries: there, well-formed, and in the languages of the source and the target.

Before a run, a file is read for `MAX_SECONDS` at most. `lingraft initialise` checks a sample of all pairs that it
learns from in the same way.
"""

import re
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from lingraft.config.recipe import Recipe
from lingraft.config.tasks import ParallelLines, Retrieval
from lingraft.config.translations import ParallelText
from lingraft.console import say
from lingraft.data.bilingual_dictionary import word_pairs_or_errors
from lingraft.data.language_detection import LanguageDetector
from lingraft.data.parallel_text import Pair, PairOrError, file_names, filter_pairs, is_held_out, pairs_or_errors
from lingraft.errors import LingraftError, TextError
from lingraft.preflight.languages import exchanged_pairs, load_detector, other_language
from lingraft.preflight.samples import TextSample

MAX_SECONDS = 30.0
_SAMPLED = 2000
_LOOKED_UP, _COMPARED = 300, 1000
"""Pairs of a sample that are looked up in the text, and whose sides' languages are compared."""
_FEW_OCCUR = 0.2
"""Share of pairs with a word of the text below which a dictionary is printed to be of little use."""
_FEW_EXCHANGED, _MOST_EXCHANGED = 0.01, 0.1
"""Shares of pairs with exchanged sides from which it is printed, and beyond which pairs are refused."""
_SPACED_SHARE = 1 / 15
"""Share of spaces beyond which a text's words stand between spaces."""
_WORD = re.compile(r"[^\W_]+")


@dataclass
class PairScan:
    """A file, or two, as far as they were read."""

    origin: str
    errors: list[str] = field(default_factory=list)
    count: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    sample: list[Pair] = field(default_factory=list)
    """Pairs, spread evenly, at most 2 * `_SAMPLED`."""
    _stride: int = field(default=1, init=False, repr=False)

    def sampled(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield pairs unchanged, count them, and keep a sample."""
        for pair in pairs:
            if self.count % self._stride == 0:
                self.sample.append(pair)
            self.count += 1
            if len(self.sample) > 2 * _SAMPLED:
                self.sample, self._stride = self.sample[::2], 2 * self._stride
            yield pair


def resource_problems(
    recipe: Recipe, taken: Mapping[str, TextSample], detector: LanguageDetector | None
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the resources of [alignment], by language; print what is left out of them.

    Args:
        recipe: names the files.
        taken: samples of text by language; the resources of these languages are looked at.
        detector: detector of languages; None: they are not checked.
    """
    alignment = recipe.alignment.only_in(taken)
    dictionary = alignment.dictionary
    for language, files in chain(alignment.parallel.items(), alignment.judged.items()):
        languages, left_out = (recipe.source.language, language), Counter[str]()
        looked = scan_pairs(pairs_or_errors(files, languages, left_out), file_names(files), left_out)
        wrong = language_problems(looked, languages, detector)
        yield from ((language, message) for message in [*looked.errors, *wrong])
    for language, file in dictionary.items():
        languages, left_out = (recipe.source.language, language), Counter[str]()
        looked = scan_pairs(word_pairs_or_errors(file, languages, left_out), file, left_out)
        text = "\n".join(chain.from_iterable(taken[language].texts.values()))
        wrong = dictionary_problems(looked, languages, detector, text)
        yield from ((language, message) for message in [*looked.errors, *wrong])
    yield from ((language, message) for language in alignment.parallel for message in _pooling_problems(recipe))


def _pooling_problems(recipe: Recipe) -> Iterator[str]:
    """Yield that pairs are pooled as no search is; of an imported task whose section is absent nothing is known."""
    pairs = recipe.adaptation.pairs
    searches = [task for task in recipe.tasks if task.kind == "retrieval" and (task.retrieval or task.train)]
    pooled = {task.name: (task.retrieval or Retrieval()).pooling for task in searches}
    if pairs and pooled and pairs.pooling not in pooled.values():
        poolings = ", ".join(f"{name} by {pooling!r}" for name, pooling in pooled.items())
        yield (
            f"[adaptation.pairs] pools sentences by {pairs.pooling!r}, but tasks pool texts otherwise ({poolings}): "
            "the language would learn other vectors than it is searched by. Set pooling to a task's"
        )


def learned_test_warnings(recipe: Recipe, languages: Iterable[str]) -> Iterator[str]:
    """Yield what is judged on pairs that are among the sentence pairs that a language learns from."""
    for language in languages:
        learned = recipe.learned_pairs(language)
        if learned is None:
            continue
        both_of = recipe.source.language, language
        for name, files in _judged_pairs(recipe, language):
            tested = {_sides(pair) for pair in _pairs_of(files, both_of)}
            pairs = _pairs_of(learned, both_of)
            both = {_sides(pair) for pair in pairs if not is_held_out(pair) and _sides(pair) in tested}
            if both:
                yield (
                    f"{language}: {len(both):,} of {len(tested):,} test pairs of {name} are among those that "
                    f"[alignment] parallel learns from. Scores are too good if they stay: remove them from "
                    f"{file_names(learned)}."
                )


def _judged_pairs(recipe: Recipe, language: str) -> Iterator[tuple[str, ParallelText]]:
    """Yield the names of what is judged on parallel lines in a language, and their files."""
    for task in recipe.tasks:
        if isinstance(task.test, ParallelLines) and not task.test.held_out and recipe.judges(task, language):
            yield f"task {task.name!r}", task.test.in_language(language)
    if files := recipe.alignment.judged.get(language):
        yield "[alignment] judged", files


def _pairs_of(files: ParallelText, languages: tuple[str, str]) -> Iterator[Pair]:
    pairs = _without_errors(pairs_or_errors(files, languages, Counter()), PairScan(file_names(files)))
    return (pair for pair in pairs if not pair.empty)


def _sides(pair: Pair) -> tuple[str, str]:
    return pair.source, pair.target


def scan_pairs(found: Iterator[PairOrError], origin: str, left_out: Counter[str]) -> PairScan:
    """Read pairs for a bounded time; errors are collected, and reading goes on after them.

    Args:
        found: pairs, or errors in their places.
        origin: their files.
        left_out: counts what is left out.
    """
    looked = PairScan(origin, left_out=left_out)
    try:
        deque(looked.sampled(filter_pairs(_without_errors(found, looked), origin, looked.left_out)), maxlen=0)
    except TextError as error:
        # If a file holds nothing but errors, these say already that it has no pairs.
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
            return


def language_problems(
    looked: PairScan, languages: tuple[str, str], detector: LanguageDetector | None, either_order: bool = False
) -> Iterator[str]:
    """Yield what is wrong with the languages of pairs: a side in another one, or sides that are exchanged.

    Args:
        looked: the pairs' sample.
        languages: those of the source and the target.
        detector: detector of languages; None: they are not checked.
        either_order: whether the target's language may come first, but then in all pairs.
    """
    if detector is None or not looked.sample:
        return
    compared = looked.sample[:: max(1, len(looked.sample) // _COMPARED)]
    in_order, exchanged = exchanged_pairs(compared, languages, detector)
    if either_order and len(in_order) < len(exchanged):
        in_order, exchanged, languages = exchanged, in_order, (languages[1], languages[0])
    known = len(in_order) + len(exchanged)
    mixed = (
        f"{looked.origin}: {len(exchanged):,} of {known:,} pairs of a sample have their sides exchanged, "
        f"{languages[1]!r} before {languages[0]!r}"
    )
    if min(len(in_order), len(exchanged)) > _MOST_EXCHANGED * known:
        yield f"{mixed}, such as {exchanged[0].place}. Give the same language first in all of them."
        return
    yield from _wrong_sides(looked, languages, detector, either_order)
    if _FEW_EXCHANGED * known <= len(exchanged) <= _MOST_EXCHANGED * known and exchanged:
        say(f"{mixed}, such as {exchanged[0].place}. They are learned from as they are.")


def require_languages(looked: PairScan, languages: tuple[str, str]) -> None:
    """Check the languages of pairs that are learned from.

    Args:
        looked: the pairs' sample.
        languages: those of the source and the target.

    Raises:
        TextError: a side is in another language, or sides are exchanged.
    """
    if found := [*language_problems(looked, languages, load_detector())]:
        raise TextError("\n".join(found))


def _wrong_sides(
    looked: PairScan, languages: tuple[str, str], detector: LanguageDetector, either_order: bool
) -> Iterator[str]:
    """Yield that a side is in another language, or both are each in the other's."""
    sides = [[pair.source for pair in looked.sample], [pair.target for pair in looked.sample]]
    wrong, turned = (
        [other_language(name, texts, detector) for name, texts in zip(expected, sides, strict=True)]
        for expected in (languages, languages[::-1])
    )
    if either_order and not any(turned):
        return
    if all(wrong) and not any(turned):
        found = [other.language for other in wrong if other]
        yield (
            f"{looked.origin}: the languages are swapped: {found[0]!r} stands where {languages[0]!r} should, and "
            f"{found[1]!r} where {languages[1]!r} should. Give the source language first."
        )
        return
    for side, name, other in zip(("source", "target"), languages, wrong, strict=True):
        if other:
            yield (
                f"{looked.origin}: the {side} side should be in {name!r}, but seems to be in {other.language!r} "
                f"({other.evidence}). Give a file of {languages[0]!r} and {languages[1]!r}."
            )


def dictionary_problems(
    looked: PairScan, languages: tuple[str, str], detector: LanguageDetector | None, text: str
) -> Iterator[str]:
    """Yield what is wrong with a dictionary: its languages, or that none of its words occurs in the target's text.

    That few of its words occur is printed.

    Args:
        looked: the sample of its pairs.
        languages: those of the source and the target; either may come first.
        detector: detector of languages; None: they are not checked.
        text: text in the target's language; empty: words are not looked up.
    """
    yield from language_problems(looked, languages, detector, either_order=True)
    pairs = looked.sample[:: max(1, len(looked.sample) // _LOOKED_UP)]
    folded = text.casefold()
    if not folded.strip() or not pairs or looked.errors:
        return
    words = {*_WORD.findall(folded)} if folded.count(" ") > _SPACED_SHARE * len(folded) else None

    def occurs(phrase: str) -> bool:
        parts = _WORD.findall(phrase.casefold())
        return bool(parts) and all(part in (folded if words is None else words) for part in parts)

    count = max(sum(map(occurs, side)) for side in zip(*((pair.source, pair.target) for pair in pairs), strict=True))
    if not count:
        yield (
            f"{looked.origin}: none of {len(pairs):,} pairs of a sample has a word that occurs in the text of "
            f"{languages[1]!r}. Give a dictionary of that language, in the same script."
        )
    elif count < _FEW_OCCUR * len(pairs):
        say(
            f"{looked.origin}: of {len(pairs):,} pairs of a sample, only {count:,} have a word that occurs in the text "
            f"of {languages[1]!r}. Little is learned from the others."
        )

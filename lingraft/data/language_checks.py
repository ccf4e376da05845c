"""Checks that texts, and both sides of pairs, are in the languages that they should be in, by samples of them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lingraft.console import say
from lingraft.data.language_detection import LanguageDetector
from lingraft.data.parallel_text import Pair
from lingraft.errors import TextError

_PART_CHARACTERS, _PARTS, _FEWEST_PARTS, _FEWEST_WORDS = 500, 40, 3, 3
_MOST_PARTS = 2 / 3
"""Share of a sample's parts that must seem to be in one other language before it is called the wrong one."""
_CLEAR_SHARE, _CLEAR_PARTS = 0.9, 10
"""Share from which, and of how many parts at least, a text is refused: of text in 15 languages no part was taken for
another one, but of dialects and of languages that py3langid does not know many are."""
_CLEARLY = 2.0
"""Nats by which the language of a pair's side has to be likelier than that of the other side."""
_ALIKE = ({"no", "nb", "nn", "da"}, {"bs", "hr", "sr"}, {"id", "ms"})
"""Languages that py3langid confuses."""
_SAMPLED, _COMPARED, _LOOKED_UP = 2000, 1000, 300
"""Pairs of a sample; those of which sides are compared; word pairs that are looked up in a text."""
_FEW_EXCHANGED, _MOST_EXCHANGED = 0.01, 0.1
"""Shares of pairs with exchanged sides from which it is printed, and beyond which pairs are refused."""
_FEW_OCCUR = 0.2
"""Share of pairs with a word of the text below which a dictionary is printed to be of little use."""
_SPACED_SHARE = 1 / 15
"""Share of spaces beyond which a text's words stand between spaces."""
_WORD = re.compile(r"[^\W_]+")


class OtherLanguage(NamedTuple):
    """A language that a sample seems to be in, other than the expected one."""

    language: str
    evidence: str
    """Number of parts of the sample that seem to be in it, or length of a short sample, for messages."""
    clear: bool
    """Whether it is nearly all parts of a sample that has many."""


@dataclass
class PairSample:
    """A sample of pairs that are read for something else, and how many there are."""

    origin: str
    """Names of their files, for messages."""
    count: int = 0
    pairs: list[Pair] = field(default_factory=list)
    """Pairs, spread evenly, at most 2 * `_SAMPLED`."""
    notes: list[str] = field(default_factory=list)
    """Findings that do not forbid to learn from them."""
    _stride: int = field(default=1, init=False, repr=False)

    def sampled(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield pairs unchanged, count them, and keep a sample."""
        for pair in pairs:
            if self.count % self._stride == 0:
                self.pairs.append(pair)
            self.count += 1
            if len(self.pairs) > 2 * _SAMPLED:
                self.pairs, self._stride = self.pairs[::2], 2 * self._stride
            yield pair


def other_language(expected: str, texts: Sequence[str], detector: LanguageDetector) -> OtherLanguage | None:
    """Return the language that most of a sample seems to be in, if that is not the expected one.

    A sample of three words or more is judged, as a whole if it is too short for parts. Of lists of 10 German, Turkish
    and English words, 97% were recognised as another language than the expected one, of 5 words 60 to 90%, of 3 words
    22 to 74%; of lists in the expected language, at most 0.5% were taken for another.
    """
    joined = " ".join(texts)
    step = max(_PART_CHARACTERS, len(joined) // _PARTS)
    starts = range(0, len(joined) - _PART_CHARACTERS // 2, step)
    parts = [joined[start : start + _PART_CHARACTERS] for start in starts]
    evidence = "{} of {} parts of a sample"
    if len(parts) < _FEWEST_PARTS:
        words = len(joined.split())
        parts, evidence = ([joined] if words >= _FEWEST_WORDS else []), f"by {words} words"
    others = Counter(other for part in parts if (other := detector.detect_other(expected, part)))
    if not others:
        return None
    [(other, count)] = others.most_common(1)
    if _are_alike(expected, other) or count < _MOST_PARTS * len(parts):
        return None
    clear = len(parts) >= _CLEAR_PARTS and count >= _CLEAR_SHARE * len(parts)
    return OtherLanguage(other, evidence.format(count, len(parts)), clear)


def require_languages(sample: PairSample, languages: tuple[str, str]) -> None:
    """Check the languages of pairs that are learned from: the source's and the target's."""
    require_none(language_problems(sample, languages, LanguageDetector.load()), sample)


def require_none(problems: Iterable[str], sample: PairSample) -> None:
    """Refuse pairs that have problems; print the notes on others."""
    if found := [*problems]:
        raise TextError("\n".join(found))
    for note in sample.notes:
        say(note)


def language_problems(
    sample: PairSample, languages: tuple[str, str], detector: LanguageDetector, either_order: bool = False
) -> Iterator[str]:
    """Yield what is wrong with the languages of pairs: a side in another one, or sides that are exchanged.

    Args:
        sample: sample of the pairs.
        languages: those of the source and the target.
        detector: detector of languages.
        either_order: whether the target's language may come first, but then in all pairs.
    """
    if not sample.pairs:
        return
    in_order, exchanged = _by_order(sample.pairs, languages, detector)
    if either_order and len(in_order) < len(exchanged):
        in_order, exchanged, languages = exchanged, in_order, (languages[1], languages[0])
    known = len(in_order) + len(exchanged)
    mixed = (
        f"{sample.origin}: {len(exchanged):,} of {known:,} pairs of a sample have their sides exchanged, "
        f"{languages[1]!r} before {languages[0]!r}"
    )
    if min(len(in_order), len(exchanged)) > _MOST_EXCHANGED * known:
        yield f"{mixed}, such as {exchanged[0].place}. Give the same language first in all of them."
        return
    yield from _wrong_sides(sample, languages, detector, either_order)
    if _FEW_EXCHANGED * known <= len(exchanged) <= _MOST_EXCHANGED * known and exchanged:
        sample.notes.append(f"{mixed}, such as {exchanged[0].place}. They are learned from as they are.")


def dictionary_problems(
    sample: PairSample, languages: tuple[str, str], detector: LanguageDetector, text: str
) -> Iterator[str]:
    """Yield what is wrong with a dictionary: its languages, or that none of its words occurs in the target's text.

    Either language may come first. That few words occur is a note; without text, words are not looked up.
    """
    yield from language_problems(sample, languages, detector, either_order=True)
    pairs = sample.pairs[:: max(1, len(sample.pairs) // _LOOKED_UP)]
    folded = text.casefold()
    if not folded.strip() or not pairs:
        return
    words = {*_WORD.findall(folded)} if folded.count(" ") > _SPACED_SHARE * len(folded) else None

    def occurs(phrase: str) -> bool:
        parts = _WORD.findall(phrase.casefold())
        return bool(parts) and all(part in (folded if words is None else words) for part in parts)

    count = max(sum(map(occurs, side)) for side in zip(*((pair.source, pair.target) for pair in pairs), strict=True))
    if not count:
        yield (
            f"{sample.origin}: none of {len(pairs):,} pairs of a sample has a word that occurs in the text of "
            f"{languages[1]!r}. Give a dictionary of that language, in the same script."
        )
    elif count < _FEW_OCCUR * len(pairs):
        sample.notes.append(
            f"{sample.origin}: of {len(pairs):,} pairs of a sample, only {count:,} have a word that occurs in the text "
            f"of {languages[1]!r}. Little is learned from the others."
        )


def _are_alike(first: str, second: str) -> bool:
    return any({first.partition("-")[0], second.partition("-")[0]} <= group for group in _ALIKE)


def _by_order(
    pairs: Sequence[Pair], languages: tuple[str, str], detector: LanguageDetector
) -> tuple[list[Pair], list[Pair]]:
    """Return pairs whose sides are clearly in the expected languages, and pairs whose sides are clearly exchanged.

    Of 400 pairs of sentences in each of eight languages none was taken for exchanged, of 2,000 of words at most 0.3%.
    Similar languages are not judged.
    """
    in_order: list[Pair] = []
    exchanged: list[Pair] = []
    for pair in pairs[:: max(1, len(pairs) // _COMPARED)] if not _are_alike(*languages) else ():
        odds = [detector.log_odds(side, *languages) for side in (pair.source, pair.target)]
        if odds[0] > _CLEARLY and odds[1] < -_CLEARLY:
            in_order.append(pair)
        elif odds[0] < -_CLEARLY and odds[1] > _CLEARLY:
            exchanged.append(pair)
    return in_order, exchanged


def _wrong_sides(
    sample: PairSample, languages: tuple[str, str], detector: LanguageDetector, either_order: bool
) -> Iterator[str]:
    """Yield that a side is in another language, or both are each in the other's."""
    sides = [[pair.source for pair in sample.pairs], [pair.target for pair in sample.pairs]]
    wrong, turned = (
        [other_language(name, texts, detector) for name, texts in zip(expected, sides, strict=True)]
        for expected in (languages, languages[::-1])
    )
    if either_order and not any(turned):
        return
    if all(wrong) and not any(turned):
        found = [other.language for other in wrong if other]
        yield (
            f"{sample.origin}: the languages are swapped: {found[0]!r} stands where {languages[0]!r} should, and "
            f"{found[1]!r} where {languages[1]!r} should. Give the source language first."
        )
        return
    for side, name, other in zip(("source", "target"), languages, wrong, strict=True):
        if other:
            yield (
                f"{sample.origin}: the {side} side should be in {name!r}, but seems to be in {other.language!r} "
                f"({other.evidence}). Give a file of {languages[0]!r} and {languages[1]!r}."
            )

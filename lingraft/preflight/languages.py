"""Languages that texts seem to be in, by the parts of a sample: of text, parallel text and dictionaries."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from lingraft.console import say
from lingraft.data.language_detection import LanguageDetector
from lingraft.data.parallel_text import Pair
from lingraft.errors import MissingExtraError
from lingraft.preflight.samples import TextSample

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


class OtherLanguage(NamedTuple):
    """A language that a sample seems to be in, other than the expected one."""

    language: str
    evidence: str
    """Number of parts of the sample that seem to be in it, or length of a short sample, for messages."""
    clear: bool
    """Whether it is nearly all parts of a sample that has many."""


def load_detector() -> LanguageDetector | None:
    """Load the detector; None, which is said, where py3langid is not installed."""
    try:
        return LanguageDetector.load()
    except MissingExtraError as error:
        say(f"The languages of text, parallel text and dictionaries are not checked: {error}")
        return None


def other_language(expected: str, texts: Sequence[str], detector: LanguageDetector) -> OtherLanguage | None:
    """Return the language that most of a sample seems to be in, if that is not the expected one.

    A sample of three words or more is judged, as a whole if it is too short for parts. Of lists of 10 German, Turkish
    and English words, 97% were recognised as another language than the expected one, of 5 words 60 to 90%, of 3 words
    22 to 74%; of lists in the expected language, at most 0.5% were taken for another.

    Args:
        expected: tag of a language.
        texts: sample of documents, sentences or words.
        detector: detector of languages.
    """
    parts, joined = _parts(texts), " ".join(texts)
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


def _are_alike(first: str, second: str) -> bool:
    return any({first.partition("-")[0], second.partition("-")[0]} <= group for group in _ALIKE)


def exchanged_pairs(
    pairs: Sequence[Pair], languages: tuple[str, str], detector: LanguageDetector
) -> tuple[list[Pair], list[Pair]]:
    """Return pairs whose sides are clearly in the expected languages, and pairs whose sides are clearly exchanged.

    Of 400 pairs of sentences in each of eight languages none was taken for exchanged, of 2,000 of words at most 0.3%.

    Args:
        pairs: sentences or words.
        languages: those expected of the source side and of the target side; similar ones are not judged.
        detector: detector of languages.
    """
    in_order: list[Pair] = []
    exchanged: list[Pair] = []
    for pair in pairs if not _are_alike(*languages) else ():
        odds = [detector.log_odds(side, *languages) for side in (pair.source, pair.target)]
        if odds[0] > _CLEARLY and odds[1] < -_CLEARLY:
            in_order.append(pair)
        elif odds[0] < -_CLEARLY and odds[1] > _CLEARLY:
            exchanged.append(pair)
    return in_order, exchanged


class WrongText(NamedTuple):
    """Text that seems to be in another language than it should."""

    language: str
    message: str
    clear: bool
    """Whether it is to be refused; py3langid knows 139 languages, and takes some dialects and rare ones for others."""


def wrong_texts(taken: Mapping[str, TextSample], detector: LanguageDetector | None) -> Iterator[WrongText]:
    """Yield the languages whose text seems to be in another one."""
    for language, sample in taken.items() if detector else ():
        texts = [*chain.from_iterable(sample.texts.values())]
        if detector and (other := other_language(language, texts, detector)):
            message = (
                f"{language}: the text should be in {language!r}, but seems to be in {other.language!r} "
                f"({other.evidence}). Check that the file is the right one."
            )
            private = " If it is, in a variety that the check does not know, tag it by a private code, 'qaa' to 'qtz'."
            yield WrongText(language, message + private if other.clear else message, other.clear)


def _parts(texts: Sequence[str]) -> list[str]:
    """Parts of the texts, evenly spread, that are long enough to tell their language."""
    joined = " ".join(texts)
    step = max(_PART_CHARACTERS, len(joined) // _PARTS)
    starts = range(0, len(joined) - _PART_CHARACTERS // 2, step)
    return [joined[start : start + _PART_CHARACTERS] for start in starts]

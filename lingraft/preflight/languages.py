"""Languages that texts seem to be in, by the parts of a sample: of text, parallel text and dictionaries."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from lingraft.console import say
from lingraft.data.language_detection import LanguageDetector
from lingraft.errors import MissingExtraError
from lingraft.preflight.samples import TextSample

_PART_CHARACTERS, _PARTS, _FEWEST_PARTS = 500, 40, 3
_MOST_PARTS = 2 / 3
"""Share of a sample's parts that must seem to be in one other language before it is called the wrong one."""
_ALIKE = ({"no", "nb", "nn", "da"}, {"bs", "hr", "sr"}, {"id", "ms"})
"""Languages that py3langid confuses."""


class OtherLanguage(NamedTuple):
    """A language that a sample seems to be in, other than the expected one, and how many of its parts do."""

    language: str
    parts: int
    of_parts: int


def load_detector() -> LanguageDetector | None:
    """Load the detector; None, which is said, where py3langid is not installed."""
    try:
        return LanguageDetector.load()
    except MissingExtraError as error:
        say(f"The languages of text, parallel text and dictionaries are not checked: {error}")
        return None


def other_language(expected: str, texts: Sequence[str], detector: LanguageDetector) -> OtherLanguage | None:
    """Return the language that most of a sample seems to be in, if that is not the expected one.

    Args:
        expected: tag of a language.
        texts: sample of documents, sentences or words; too short a sample is not judged.
        detector: detector of languages.
    """
    parts = _parts(texts)
    others = Counter(other for part in parts if (other := detector.detect_other(expected, part)))
    if len(parts) < _FEWEST_PARTS or not others:
        return None
    [(other, count)] = others.most_common(1)
    alike = any({expected.partition("-")[0], other} <= group for group in _ALIKE)
    return None if alike or count < _MOST_PARTS * len(parts) else OtherLanguage(other, count, len(parts))


def wrong_text_warnings(taken: Mapping[str, TextSample], detector: LanguageDetector | None) -> Iterator[str]:
    """Yield of each language whose text seems to be in another one what that is.

    It is no problem that ends a run: py3langid knows 139 languages, and takes dialects and rare languages for others.
    """
    for language, sample in taken.items() if detector else ():
        texts = [*chain.from_iterable(sample.texts.values())]
        if detector and (other := other_language(language, texts, detector)):
            yield (
                f"{language}: the text should be in {language!r}, but seems to be in {other.language!r} ({other.parts} "
                f"of {other.of_parts} parts of a sample). Check that the file is the right one."
            )


def _parts(texts: Sequence[str]) -> list[str]:
    """Parts of the texts, evenly spread, that are long enough to tell their language."""
    joined = " ".join(texts)
    step = max(_PART_CHARACTERS, len(joined) // _PARTS)
    starts = range(0, len(joined) - _PART_CHARACTERS // 2, step)
    return [joined[start : start + _PART_CHARACTERS] for start in starts]

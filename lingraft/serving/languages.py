"""Languages of a request's texts: named or detected, and how much of a text its language's tokenizer knows.

A tokenizer turns characters that it does not know into one unknown piece. A model would thus give all Chinese texts
that are sent as German the same label, with the usual confidence.
"""

from collections.abc import Collection, Sequence

from lingraft.data.language_detection import DetectedLanguage, LanguageDetector
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import RequestError
from lingraft.serving.bundle import Bundle
from lingraft.serving.handlers.fill_mask import MASK
from lingraft.serving.handlers.handler import TaskInput, TokenRow

AUTO = "auto"


def resolve_languages(
    languages: Sequence[str], texts: Sequence[str], served: Collection[str], detector: LanguageDetector | None
) -> list[DetectedLanguage]:
    """Return the language of each text; 'auto' is detected, unless there is no detector."""
    return [
        _resolve_language(place, language, text, served, detector)
        for place, (language, text) in enumerate(zip(languages, texts, strict=True))
    ]


def _resolve_language(
    place: int, language: str, text: str, served: Collection[str], detector: LanguageDetector | None
) -> DetectedLanguage:
    if language in served:
        return DetectedLanguage(language, 1.0)
    speaks = f"this endpoint speaks {sorted(served)}"
    if language != AUTO:
        auto = f", and finds it out for {AUTO!r}" if detector else ""
        raise RequestError(f"text {place} is in language {language[:40]!a}; {speaks}{auto}.")
    if detector is None:
        raise RequestError(f"text {place} is in language {AUTO!r}; {speaks} and was started without detection.")
    detected = detector.detect(text)
    matches = [tag for tag in served if tag == detected.language] or [
        tag for tag in served if tag.partition("-")[0] == detected.language
    ]
    if len(matches) != 1:
        raise RequestError(
            f"text {place} seems to be in {detected.language!r} (confidence {detected.confidence:.2f}); {speaks}. If "
            "it is in one of them, name it."
        )
    return DetectedLanguage(matches[0], detected.confidence)


def unknown_shares(request: TaskInput, rows: Sequence[TokenRow], bundle: Bundle) -> list[float]:
    """Return the share of each text's characters, without blanks, that are unknown; the texts of a pair count together.

    Characters are counted and not pieces, since any run of unknown characters is one piece.
    """
    tokenizers = [bundle.languages[language].tokenizer for language in request.languages]
    doubtful = {row.text for row in rows if tokenizers[row.text].special.unknown in row.ids}
    texts = zip(*request.texts.values(), strict=True)
    return [
        _unknown_share(" ".join(each).replace(MASK, " "), tokenizer) if place in doubtful else 0.0
        for place, (each, tokenizer) in enumerate(zip(texts, tokenizers, strict=True))
    ]


def _unknown_share(text: str, tokenizer: Tokenizer) -> float:
    encoded = tokenizer.encode_spans(text)
    spans = zip(encoded.ids, encoded.starts, encoded.ends, strict=True)
    unknown = "".join(text[start:end] for index, start, end in spans if index == tokenizer.special.unknown)
    return len("".join(unknown.split())) / max(1, len("".join(text.split())))


def mismatch_warning(shares: Sequence[float], languages: Sequence[str], limit: float) -> str:
    """Return a warning that lists the texts whose unknown share is above `limit`; empty if there are none."""
    lines = [
        f"text {place} does not look like {language!r}: its tokenizer does not know {share:.0%} of the characters"
        for place, (share, language) in enumerate(zip(shares, languages, strict=True))
        if share > limit
    ]
    more = [f"{len(lines) - 5} more"] if len(lines) > 5 else []
    return "; ".join([*lines[:5], *more])

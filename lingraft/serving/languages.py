"""Languages of a request's texts: named or detected, and whether a text looks like another language.

A tokenizer turns all characters that it does not know into one unknown piece. A model would thus give all Chinese texts
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
_SHOWN_TEXTS = 5


def resolve_languages(
    languages: Sequence[str], texts: Sequence[str], served: Collection[str], detector: LanguageDetector | None
) -> list[DetectedLanguage]:
    """Return the language of each text; 'auto' is detected, unless there is no detector.

    Raises:
        RequestError: a named or detected language is not served.
    """
    return [
        _resolve_language(place, language, text, served, detector)
        for place, (language, text) in enumerate(zip(languages, texts, strict=True))
    ]


def _resolve_language(
    place: int, language: str, text: str, served: Collection[str], detector: LanguageDetector | None
) -> DetectedLanguage:
    if language in served:
        return DetectedLanguage(language, 1.0)
    if language != AUTO:
        raise RequestError(
            f"text {place} is in language {language[:40]!a}; this endpoint speaks {sorted(served)}"
            f"{f', and finds it out for {AUTO!r}' if detector else ''}."
        )
    if detector is None:
        raise RequestError(
            f"text {place} is in language {AUTO!r}, but this endpoint was started without detection. "
            f"Name one of {sorted(served)}."
        )
    detected = detector.detect(text)
    matches = [tag for tag in served if tag == detected.language] or [
        tag for tag in served if tag.partition("-")[0] == detected.language
    ]
    if len(matches) != 1:
        raise RequestError(
            f"text {place} seems to be in {detected.language!r} (confidence {detected.confidence:.2f}); this endpoint "
            f"speaks {sorted(served)}. If it is in one of them, name it."
        )
    return DetectedLanguage(matches[0], detected.confidence)


def unknown_shares(request: TaskInput, rows: Sequence[TokenRow], bundle: Bundle) -> list[float]:
    """Return the share of each text's characters, without white space, for which its tokenizer has no piece.

    Characters are counted and not pieces, since any run of unknown characters is one piece. The texts of a pair count
    together. Only texts whose rows have an unknown piece are examined.
    """
    tokenizers = [bundle.languages[language].tokenizer for language in request.languages]
    doubtful = {row.text for row in rows if tokenizers[row.text].special.unknown in row.ids}
    texts = list(zip(*request.texts.values(), strict=True))
    return [
        _unknown_share(" ".join(texts[place]), tokenizer) if place in doubtful else 0.0
        for place, tokenizer in enumerate(tokenizers)
    ]


def _unknown_share(text: str, tokenizer: Tokenizer) -> float:
    text = text.replace(MASK, " ")
    encoded = tokenizer.encode_spans(text)
    spans = zip(encoded.ids, encoded.starts, encoded.ends, strict=True)
    unknown = sum(_count_visible(text[start:end]) for index, start, end in spans if index == tokenizer.special.unknown)
    return unknown / max(1, _count_visible(text))


def _count_visible(text: str) -> int:
    return sum(map(len, text.split()))


def mismatch_warning(shares: Sequence[float], languages: Sequence[str], others: Sequence[str], limit: float) -> str:
    """Return a warning that lists the texts whose unknown share is above `limit`; empty if there are none.

    Args:
        languages: language in which each text was sent.
        others: language that each text seems to be in; empty if that is not known.
        limit: largest share that is no reason for a warning.
    """
    lines = [
        f"text {place} does not look like {language!r}: its tokenizer does not know {share:.0%} of the characters"
        + (f", and the language seems to be {other!r}" if other else "")
        for place, (share, language, other) in enumerate(zip(shares, languages, others, strict=True))
        if share > limit
    ]
    more = [f"{len(lines) - _SHOWN_TEXTS} more"] if len(lines) > _SHOWN_TEXTS else []
    return "; ".join([*lines[:_SHOWN_TEXTS], *more])

"""Language of each text of a request: named by the client, or detected."""

from collections.abc import Collection, Sequence

from lingraft.data.language_detection import DetectedLanguage, LanguageDetector
from lingraft.errors import RequestError

AUTO = "auto"


def resolve_languages(
    languages: Sequence[str], texts: Sequence[str], served: Collection[str], detector: LanguageDetector | None
) -> list[DetectedLanguage]:
    """Resolve the language of each text; 'auto' is detected.

    Args:
        languages: language tag or 'auto' of each text.
        texts: texts in the same order.
        served: tags of the languages that are served.
        detector: language detector; None if the endpoint was started without detection.

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
    found = detector.detect(text)
    return DetectedLanguage(_matching_language(place, found, served), found.confidence)


def _matching_language(place: int, found: DetectedLanguage, served: Collection[str]) -> str:
    """Return the served language with the detected code, such as 'pt-BR' for 'pt' if no other fits."""
    matches = [name for name in served if name == found.language] or [
        name for name in served if name.partition("-")[0] == found.language
    ]
    if len(matches) != 1:
        raise RequestError(
            f"text {place} seems to be in {found.language!r} (confidence {found.confidence:.2f}); this endpoint speaks "
            f"{sorted(served)}. If it is in one of them, name it."
        )
    return matches[0]

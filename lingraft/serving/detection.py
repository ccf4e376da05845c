"""The language of each text of a request: the one that it names, or the one that is found out."""

from collections.abc import Collection, Sequence

from lingraft.data.language_detection import DetectedLanguage, LanguageDetector
from lingraft.errors import RequestError

AUTO = "auto"


def resolve_languages(
    languages: Sequence[str], texts: Sequence[str], served: Collection[str], detector: LanguageDetector | None
) -> list[DetectedLanguage]:
    """The language of each text: named, or found out.

    Args:
        languages: named ones, or "auto".
        texts: in the same order.
        served: what there are tables for.
        detector: None where the endpoint was started without one.

    Raises:
        RequestError: a language is not served, by its name or as it was found out.
    """
    return [
        _resolve_language(place, *pair, served, detector)
        for place, pair in enumerate(zip(languages, texts, strict=True))
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
    """A served language of the code that was found: 'pt-BR' where 'pt' was, if there is no other."""
    fitting = [name for name in served if name == found.language] or [
        name for name in served if name.partition("-")[0] == found.language
    ]
    if len(fitting) != 1:
        raise RequestError(
            f"text {place} seems to be in {found.language!r} (confidence {found.confidence:.2f}); this endpoint speaks "
            f"{sorted(served)}. If it is in one of them, name it."
        )
    return fitting[0]

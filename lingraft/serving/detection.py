"""Which language a text is in, where a request leaves that open: py3langid, offline, among all languages it knows.

Among all, not among those served alone: a text in another language is to be refused, not answered by a table that does
not fit it. docs/serving.md has how often it is right.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Self

from lingraft.errors import MissingExtraError, RequestError

AUTO = "auto"
_NONE = "zxx"
"""ISO 639's code for what is no language, such as numbers."""
_SURE = 0.7
_LOOKED_AT = 500
"""Characters: more of them hardly change what is found, and cost time."""


class Detected(NamedTuple):
    """A language, and how sure that is, 0 to 1; 1 where the request named it."""

    language: str
    confidence: float


class Detector:
    """py3langid's model of 139 languages; threads may share it."""

    def __init__(self, identifier: Any) -> None:
        self._identifier = identifier
        self._known = frozenset(map(str, identifier.nb_classes))

    @classmethod
    def load(cls) -> Self:
        """Unpack the model that comes with the package; seconds.

        Raises:
            MissingExtraError: py3langid is not installed.
        """
        try:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier
        except ImportError as error:
            raise MissingExtraError("py3langid", "serving") from error
        return cls(LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True))

    def other_than(self, language: str, text: str, *, unsure: bool = False) -> str:
        """Another language that a text seems to be in; an empty string if it may well be in the one named.

        Args:
            language: named one. Of a language that is not among the 139, nothing can be said.
            text: its beginning is looked at.
            unsure: whether a language of any confidence will do.
        """
        named = language.partition("-")[0]
        if named not in self._known:
            return ""
        found = self.detect(text[:_LOOKED_AT])
        plain = found.confidence >= (0.0 if unsure else _SURE)
        return found.language if plain and found.language not in (named, _NONE) else ""

    def detect(self, text: str) -> Detected:
        """The most probable language, as an ISO 639 code."""
        language, confidence = self._identifier.classify(text)
        return Detected(str(language), float(confidence))


def resolve(
    languages: Sequence[str], texts: Sequence[str], served: Collection[str], detector: Detector | None
) -> list[Detected]:
    """The language of each text: named, or found out.

    Args:
        languages: named ones, or "auto".
        texts: in the same order.
        served: what there are tables for.
        detector: None where the endpoint was started without one.

    Raises:
        RequestError: a language is not served, by its name or as it was found out.
    """
    return [_one(place, *pair, served, detector) for place, pair in enumerate(zip(languages, texts, strict=True))]


def _one(place: int, language: str, text: str, served: Collection[str], detector: Detector | None) -> Detected:
    if language in served:
        return Detected(language, 1.0)
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
    return Detected(_served_form(place, found, served), found.confidence)


def _served_form(place: int, found: Detected, served: Collection[str]) -> str:
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

"""Which language a text is in: py3langid, offline, among all languages it knows.

Among all, not among those served alone: a text in another language is to be refused, not answered by a table that does
not fit it. docs/serving.md has how often it is right.
"""

from typing import Any, NamedTuple, Self

from lingraft.errors import MissingExtraError

_NONE = "zxx"
"""ISO 639's code for what is no language, such as numbers."""
_SURE = 0.7
_LOOKED_AT = 500
"""Characters: more of them hardly change what is found, and cost time."""


class DetectedLanguage(NamedTuple):
    """A language, and how sure that is, 0 to 1; 1 where the request named it."""

    language: str
    confidence: float


class LanguageDetector:
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

    def detect_other(self, language: str, text: str, *, unsure: bool = False) -> str:
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

    def detect(self, text: str) -> DetectedLanguage:
        """The most probable language, as an ISO 639 code."""
        language, confidence = self._identifier.classify(text)
        return DetectedLanguage(str(language), float(confidence))

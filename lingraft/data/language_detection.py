"""Detection of a text's language, offline, with py3langid.

All languages that py3langid knows are candidates, not only those served: a text in another language is to be refused,
not answered with embeddings of the wrong language. docs/guides/serving.md reports the accuracy.
"""

import math
from typing import Any, NamedTuple, Self

_NONE = "zxx"
"""ISO 639 code for text without a language, such as numbers."""
_SURE = 0.7
_LEAST_PROBABLE = 1e-12
_LOOKED_AT = 500
"""Characters of a text that are examined; more hardly change the result, and cost time."""


class DetectedLanguage(NamedTuple):
    """A language and its confidence, from 0 to 1; 1 if the request named the language."""

    language: str
    confidence: float


class LanguageDetector:
    """Detector of 139 languages by py3langid's model; threads may share it."""

    def __init__(self, identifier: Any) -> None:
        self._identifier = identifier
        self._known = frozenset(map(str, identifier.nb_classes))

    @classmethod
    def load(cls) -> Self:
        """Unpack the model that comes with the package; seconds."""
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        return cls(LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True))

    def detect_other(self, language: str, text: str, *, unsure: bool = False) -> str:
        """Return another language that a text seems to be in; an empty string if it may well be in the named one."""
        named = language.partition("-")[0]
        if named not in self._known:
            return ""
        found = self.detect(text[:_LOOKED_AT])
        return found.language if found.confidence >= _SURE and found.language not in (named, _NONE) else ""

    def log_odds(self, text: str, first: str, second: str) -> float:
        """Return how much likelier a text is in the first of two languages, in nats; 0 if either is not known."""
        codes = [language.partition("-")[0] for language in (first, second)]
        if not self._known.issuperset(codes):
            return 0.0
        probabilities = dict(self._identifier.rank(text[:_LOOKED_AT]))
        ours, theirs = (max(float(probabilities[code]), _LEAST_PROBABLE) for code in codes)
        return math.log(ours / theirs)

    def detect(self, text: str) -> DetectedLanguage:
        """Return the most probable language, as an ISO 639 code."""
        language, confidence = self._identifier.classify(text)
        return DetectedLanguage(str(language), float(confidence))

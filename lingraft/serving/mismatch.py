"""Texts that do not look like the language they were sent in.

A tokenizer makes one unknown piece of all that it does not know, so that a model would answer any Chinese text that is
sent as German with the same label, and be as sure of it as of any other.
"""

from collections.abc import Sequence

from lingraft.data.language_detection import LanguageDetector
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import RequestError
from lingraft.serving.bundle import Bundle
from lingraft.serving.tasks.fill_mask import MASK
from lingraft.serving.tasks.handler import TaskInput, TokenRow

UNKNOWN_SHARE = "unknown_share"
DETECTED_LANGUAGE = "detected_language"
WARNING = "warning"
"""Name of the response's parameter."""
_SHOWN = 5


def unknown_shares(asked: TaskInput, rows: Sequence[TokenRow], bundle: Bundle) -> list[float]:
    """Share of each text's characters, blanks aside, that its tokenizer has no piece for.

    Characters are counted and not pieces: however many unknown ones stand side by side, they are one piece.

    Args:
        asked: texts with their languages; the texts of a pair count together.
        rows: what the model reads of them; a text without unknown pieces there is not looked at again.
        bundle: has the tokenizers.
    """
    tokenizers = [bundle.languages[language].tokenizer for language in asked.languages]
    doubtful = {row.text for row in rows if tokenizers[row.text].special.unknown in row.ids}
    texts = list(zip(*asked.texts.values(), strict=True))
    return [
        _unknown_share(" ".join(texts[place]), tokenizers[place]) if place in doubtful else 0.0
        for place in range(len(texts))
    ]


def _unknown_share(text: str, tokenizer: Tokenizer) -> float:
    text = text.replace(MASK, " ")
    found = tokenizer.encode_spans(text)
    spans = zip(found.ids, found.starts, found.ends, strict=True)
    unknown = sum(_visible(text[start:end]) for index, start, end in spans if index == tokenizer.special.unknown)
    return unknown / max(1, _visible(text))


def _visible(text: str) -> int:
    return sum(map(len, text.split()))


def detect_other_languages(
    texts: Sequence[str],
    named: Sequence[str],
    unsure: Sequence[bool],
    detector: LanguageDetector | None,
    *,
    every: bool,
) -> list[str]:
    """Language that each text seems to be in, where that is not the one it was sent in; else an empty string.

    Args:
        texts: of a request.
        named: their languages, or "auto", of which there is no other.
        unsure: which of them have too many unknown characters; of those the most probable language is told.
        detector: None where the endpoint was started without one.
        every: whether to look at the rest, too.
    """
    if detector is None:
        return [""] * len(texts)
    return [
        detector.detect_other(language, text, unsure=doubt) if doubt or every else ""
        for text, language, doubt in zip(texts, named, unsure, strict=True)
    ]


def require_known(shares: Sequence[float], spoken: Sequence[str], others: Sequence[str], limit: float) -> None:
    """Refuse texts of which too much is unknown.

    Raises:
        RequestError: the message says which texts, how much of them, and what language they seem to be in.
    """
    if told := mismatch_warning(shares, spoken, others, limit):
        raise RequestError(f"{told}. Send each text with its own language.")


def mismatch_warning(shares: Sequence[float], spoken: Sequence[str], others: Sequence[str], limit: float) -> str:
    """Which texts have more unknown characters than `limit`; an empty string if none has."""
    told = [
        f"text {place} does not look like {language!r}: its tokenizer does not know {share:.0%} of the characters"
        + (f", and the language seems to be {other!r}" if other else "")
        for place, (share, language, other) in enumerate(zip(shares, spoken, others, strict=True))
        if share > limit
    ]
    more = [f"{len(told) - _SHOWN} more"] if len(told) > _SHOWN else []
    return "; ".join([*told[:_SHOWN], *more])

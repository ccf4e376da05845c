"""Detection of texts that do not look like the language they were sent in.

A tokenizer turns all characters that it does not know into one unknown piece. A model would thus give all Chinese texts
that are sent as German the same label, with the usual confidence.
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
    """Return the share of each text's characters, without white space, for which its tokenizer has no piece.

    Characters are counted and not pieces, since any run of unknown characters is one piece.

    Args:
        asked: texts with their languages; the texts of a pair count together.
        rows: encoded texts; only texts with an unknown piece are examined.
        bundle: bundle with the tokenizers.
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
    """Return the detected language of each text if it differs from the one it was sent in; else an empty string.

    Args:
        texts: texts of a request.
        named: language tag or 'auto' of each text; 'auto' never differs.
        unsure: whether each text has too many unknown characters; the most probable language is returned for these.
        detector: language detector; None if the endpoint was started without detection.
        every: whether to examine the other texts, too.
    """
    if detector is None:
        return [""] * len(texts)
    return [
        detector.detect_other(language, text, unsure=doubt) if doubt or every else ""
        for text, language, doubt in zip(texts, named, unsure, strict=True)
    ]


def require_known(shares: Sequence[float], spoken: Sequence[str], others: Sequence[str], limit: float) -> None:
    """Refuse texts with too large a share of unknown characters.

    Raises:
        RequestError: a text is above the limit; the message has the share and the detected language of each.
    """
    if message := mismatch_warning(shares, spoken, others, limit):
        raise RequestError(f"{message}. Send each text with its own language.")


def mismatch_warning(shares: Sequence[float], spoken: Sequence[str], others: Sequence[str], limit: float) -> str:
    """Return a warning that lists texts with a share of unknown characters above `limit`; empty if there are none."""
    lines = [
        f"text {place} does not look like {language!r}: its tokenizer does not know {share:.0%} of the characters"
        + (f", and the language seems to be {other!r}" if other else "")
        for place, (share, language, other) in enumerate(zip(shares, spoken, others, strict=True))
        if share > limit
    ]
    more = [f"{len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "; ".join([*lines[:_SHOWN], *more])

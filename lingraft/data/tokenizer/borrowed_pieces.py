"""Pieces that a language's tokenizer borrows from the source's, where it has none of its own for the same text.

Names, numbers and code stand in texts of any language, and of any script. A tokenizer trained on the language's text
cuts most of them into crumbs, whose rows mean nothing; the source may have a piece for them, with a row that it knows.
"""

import statistics
from collections.abc import Iterator
from typing import Protocol

from lingraft.data.tokenizer.pieces import SPACE_MARK, SPECIAL_PIECES, SpecialIds, Surface
from lingraft.data.tokenizer.unigram import SCORE_STEP, BorrowedPiece, Unigram

_CONTINUATION_SCORE = -2.0
"""Score of pieces that continue a word, relative to that of whole words; a multiple of `SCORE_STEP`."""


class Lender(Protocol):
    """Part of a source's `Tokenizer` that borrowing needs."""

    @property
    def special(self) -> SpecialIds:
        """Ids of its special pieces."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""

    def surfaces(self) -> list[Surface | None]:
        """Return the surface of every id."""


def choose_borrowed(learned: Unigram, source: Lender) -> list[BorrowedPiece]:
    """Choose the source's pieces that a vocabulary lacks, and their scores: all that its normalisation leaves."""
    known = {piece.text for piece in learned.pieces} | {*SPECIAL_PIECES}
    word_score = _word_score([piece.score for piece in learned.pieces])
    return [
        BorrowedPiece(text, word_score + (0.0 if text.startswith(SPACE_MARK) else _CONTINUATION_SCORE), index)
        for text, index in _source_ids(source).items()
        if text not in known and learned.normalizer.normalize_str(plain := text.removeprefix(SPACE_MARK)) == plain
    ]


def _word_score(own: list[float]) -> float:
    """Return the score of whole words: the median of the language's own.

    German with MiniLM's pieces, 30,000 own ones: within 3 nats above and 1 below, retrieval hardly changes; at the
    lowest of the own scores it is 3 points of 44 worse. So low that no own piece is cut into two borrowed ones.
    """
    lowest_steps = min(own) / SCORE_STEP
    return min(statistics.median_low(own), (lowest_steps // 2 - 1) * SCORE_STEP)


def lower_cases(source: Lender) -> bool:
    """Return whether a tokenizer cuts upper case like lower case."""
    letters = {text for _, (text, _) in _ordinary(source) if len(text) == 1 and text.lower() != text.upper()}
    cased = [(letter.upper(), letter.lower()) for letter in letters if letter.upper().lower() == letter.lower()]
    return bool(cased) and all(source.encode(upper) == source.encode(lower) for upper, lower in cased)


def _source_ids(source: Lender) -> dict[str, int]:
    """Return the source's ids by the pieces, with SentencePiece's mark, that stand for the same text.

    Of several source pieces that read alike, the first is taken. A character that the source has at the beginning of
    words alone stands for itself inside of them, too, since it would be unknown there.
    """
    found: dict[str, int] = {}
    for index, (text, initial) in _ordinary(source):
        for piece in [SPACE_MARK + text] * (initial is not False) + [text] * (not initial):
            found.setdefault(piece, index)
    for index, (text, _) in _ordinary(source):
        if len(text) == 1:
            found.setdefault(text, index)
    return found


def _ordinary(source: Lender) -> Iterator[tuple[int, Surface]]:
    """Yield ids and surfaces of pieces that are text without spaces."""
    special = set(source.special)
    for index, each in enumerate(source.surfaces()):
        if each and index not in special and each.text and not any(map(str.isspace, each.text)):
            yield index, each

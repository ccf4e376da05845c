"""Vocabularies that SentencePiece learns, as a `tokenizer.json`: the library `tokenizers` cuts texts by them.

Texts are normalised before SentencePiece sees them, by what the file itself says: control characters go, white space
and marks of direction become spaces, and the rest gets its form NFKC.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from lingraft.artifacts.files import write_text
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SPACE_MARK, SPECIAL_PIECES
from lingraft.errors import TokenizerError

SCORE_STEP = 2.0**-7
"""Step of scores. Multiples of 2^-7 add up exactly, so that which of two segmentations is better does not depend on
how the sums before them were rounded. A step is less than 1% of a piece's probability."""
BORROWED = "borrowed"
"""Key of a `tokenizer.json` of ours: the SHA-256 of the source's tokenizer, and the source's ids of the last pieces."""
_REMOVED = r"[\x{0}-\x{8}\x{b}\x{e}-\x{1f}\x{7f}\x{8f}\x{9f}]"
_SPACES = (
    r"[\x{9}\x{a}\x{c}\x{d}\x{85}\x{61c}\x{1680}\x{200b}\x{200c}\x{200e}\x{200f}\x{2028}\x{2029}\x{2581}\x{feff}"
    r"\x{fffd}]"
)
"""Characters that SentencePiece's own rules, nmt_nfkc, remove, and those that they take for spaces."""
_WIDE_TILDE, _STAND_IN = "\uff5e", "\ufdd0"
"""Full-width tilde, which those rules leave as it is, and a code point that is no character, now or ever."""
_SPECIAL_SCORE = 8
"""Times the lowest score: no text becomes a special piece, as `<mask>`, cut into 7 pieces at most, scores more."""
_COMPARED = 200
"""Lines of the training text whose segmentation is compared with SentencePiece's own."""
_LONGEST_LINE_BYTES = 1 << 30
"""Longest line in training; SentencePiece's default of 4,192 bytes silently leaves longer lines out."""


class TooManyPiecesError(TokenizerError):
    """The vocabulary has more pieces than the text supports."""

    def __init__(self, message: str, supported: int) -> None:
        super().__init__(message)
        self.supported = supported


class Piece(NamedTuple):
    """A piece of a vocabulary, and the logarithm of its probability."""

    text: str
    score: float


class BorrowedPiece(NamedTuple):
    """A piece that is added to a vocabulary."""

    text: str
    score: float
    source_id: int


class Unigram(NamedTuple):
    """A learned vocabulary, and how texts are normalised."""

    pieces: list[Piece]
    """Pieces behind the special ones."""
    normalizer: normalizers.Normalizer

    def tokenizer(self, borrowed: Sequence[BorrowedPiece] = ()) -> Tokenizer:
        """Build a tokenizer, with borrowed pieces behind its own."""
        scored = [*self.pieces, *(Piece(piece.text, piece.score) for piece in borrowed)]
        special = _SPECIAL_SCORE * min(piece.score for piece in scored)
        vocabulary = [*(Piece(name, special) for name in SPECIAL_PIECES), *scored]
        made = Tokenizer(models.Unigram(vocabulary, unk_id=DEFAULT_SPECIAL_IDS.unknown, byte_fallback=False))
        made.normalizer = self.normalizer
        words = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="always")]
        made.pre_tokenizer = pre_tokenizers.Sequence(words)
        made.decoder = decoders.Metaspace(SPACE_MARK, prepend_scheme="always")
        made.add_special_tokens(
            [AddedToken(name, normalized=False, lstrip=name == SPECIAL_PIECES.mask) for name in SPECIAL_PIECES]
        )
        return made

    def write(self, file: Path, lender: str = "", borrowed: Sequence[BorrowedPiece] = ()) -> None:
        """Write a `tokenizer.json`; `lender` is the SHA-256 of the tokenizer that pieces are borrowed from."""
        settings = json.loads(self.tokenizer(borrowed).to_str())
        if lender:
            settings[BORROWED] = {"tokenizer": lender, "ids": [piece.source_id for piece in borrowed]}
        write_text(file, json.dumps(settings, ensure_ascii=False))


def train_unigram(
    lines: Iterable[str], vocabulary: int, character_coverage: float, lower_case: bool = False
) -> Unigram:
    """Learn a vocabulary from lines of text with SentencePiece; with `lower_case`, of texts in lower case."""
    steps = [
        normalizers.Replace(Regex(_REMOVED), ""),
        normalizers.Replace(Regex(_SPACES), " "),
        normalizers.Replace(_WIDE_TILDE, _STAND_IN),
        normalizers.NFKC(),
        normalizers.Replace(_STAND_IN, _WIDE_TILDE),
        *([normalizers.Lowercase()] if lower_case else ()),
    ]
    normalizer = normalizers.Sequence(steps)
    model, sample = BytesIO(), list[str]()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_normalised(lines, normalizer, sample),
            model_writer=model,
            model_type="unigram",
            normalization_rule_name="identity",
            vocab_size=vocabulary,
            character_coverage=character_coverage,
            bos_id=DEFAULT_SPECIAL_IDS.begin,
            pad_id=DEFAULT_SPECIAL_IDS.pad,
            eos_id=DEFAULT_SPECIAL_IDS.end,
            unk_id=DEFAULT_SPECIAL_IDS.unknown,
            bos_piece=SPECIAL_PIECES.begin,
            pad_piece=SPECIAL_PIECES.pad,
            eos_piece=SPECIAL_PIECES.end,
            unk_piece=SPECIAL_PIECES.unknown,
            control_symbols=[SPECIAL_PIECES.mask],
            max_sentence_length=_LONGEST_LINE_BYTES,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _training_error(vocabulary, str(error)) from error
    learned = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(len(SPECIAL_PIECES), learned.get_piece_size())
    made = Unigram([Piece(learned.id_to_piece(i), _rounded(learned.get_score(i))) for i in ids], normalizer)
    _require_same_segmentation(made, learned, sample)
    return made


def _rounded(score: float) -> float:
    return round(score / SCORE_STEP) * SCORE_STEP


def _normalised(lines: Iterable[str], normalizer: normalizers.Normalizer, sample: list[str]) -> Iterator[str]:
    """Yield normalised lines, and keep the first ones."""
    found = iter(lines)
    for line in islice(found, _COMPARED):
        sample.append(normalizer.normalize_str(line))
        yield sample[-1]
    if not sample:
        raise TokenizerError("the training split has no lines of text to train a tokenizer on. Give more text.")
    yield from map(normalizer.normalize_str, found)


def _require_same_segmentation(
    made: Unigram, learned: sentencepiece.SentencePieceProcessor, sample: Sequence[str]
) -> None:
    """Check that texts get SentencePiece's own pieces, or others whose scores are equal but for rounding."""
    tokenizer, first = made.tokenizer(), len(SPECIAL_PIECES)
    for line, theirs in zip(sample, learned.encode(list(sample)), strict=True):
        ours = tokenizer.encode(line, add_special_tokens=False).ids
        scores = [sum(made.pieces[index - first].score for index in ids if index >= first) for ids in (ours, theirs)]
        texts = ["".join(made.pieces[index - first].text for index in ids if index >= first) for ids in (ours, theirs)]
        if texts[0] != texts[1] or abs(scores[0] - scores[1]) > SCORE_STEP * (len(ours) + len(theirs)):
            raise TokenizerError(
                f"tokenizers {texts[0]!r} and SentencePiece {texts[1]!r} cut a line of the text differently. Report "
                "it with the line and the versions of both."
            )


def _training_error(vocabulary: int, message: str) -> TokenizerError:
    """Return an error that explains SentencePiece's message in terms of the recipe."""
    start = f"a vocabulary of {vocabulary} pieces cannot be trained on this text: "
    if too_high := re.search(r"too high.* a value <= (\d+)", message):
        remedy = "Lower tokenizer.vocabulary (of `add-language`: --vocabulary) to that, or give more text."
        return TooManyPiecesError(f"{start}it supports {too_high[1]} at most. {remedy}", int(too_high[1]))
    if too_low := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return TokenizerError(
            f"{start}its characters and the special tokens alone are {too_low[1]}. "
            "Raise tokenizer.vocabulary to that or more, or lower tokenizer.character_coverage."
        )
    return TokenizerError(f"{start}SentencePiece can make nothing of it ({message.strip()}). Give other text, or more.")

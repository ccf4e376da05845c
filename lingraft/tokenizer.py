"""One SentencePiece unigram model a language, with special tokens at the same ids everywhere."""

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import sentencepiece

from lingraft import artifact
from lingraft.artifact import Artifact, Kind
from lingraft.config import Recipe
from lingraft.errors import TokenizerError
from lingraft.files import sha256_of
from lingraft.text import load_split

BEGIN, PAD, END, UNKNOWN, MASK = range(5)
SPECIAL_ROLES = ("begin", "pad", "end", "unknown", "mask")
SPECIAL_PIECES = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_MODEL = "sentencepiece.model"
_LONGEST_LINE_BYTES = 1 << 30
"""SentencePiece's limit. Its default of 4,192 leaves longer lines out without a word."""


@dataclass(frozen=True)
class Tokenizer:
    """A language's pieces and how to cut text into them."""

    language: str
    model: Path
    hash: str
    _processor: sentencepiece.SentencePieceProcessor

    @classmethod
    def load(cls, folder: Path, language: str | None = None) -> "Tokenizer":
        """Open a tokenizer artifact.

        Raises:
            ArtifactError: not a tokenizer, or damaged.
            TokenizerError: it is not the tokenizer of `language`.
        """
        found = Artifact.load(folder, Kind.TOKENIZER)
        actual = str(found.manifest.language)
        if language is not None and actual != language:
            raise TokenizerError(f"{folder} is the tokenizer of {actual!r}, not of {language!r}. Train one for it.")
        return cls.from_file(folder / _MODEL, actual)

    @classmethod
    def from_file(cls, model: Path, language: str) -> "Tokenizer":
        """Open a SentencePiece model file that stands outside a tokenizer artifact."""
        return cls(language, model, sha256_of(model), sentencepiece.SentencePieceProcessor(model_file=str(model)))

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without special tokens."""
        return list(self._processor.encode(text))

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        """Ids of many texts, on all cores."""
        return [list(ids) for ids in self._processor.encode(texts, num_threads=-1)]

    def pieces(self) -> list[str]:
        """Surface of every id."""
        return [str(self._processor.id_to_piece(index)) for index in range(len(self))]


def train(recipe: Recipe, text: Path, out: Path) -> Artifact:
    """Train a language's tokenizer on the training split of its text.

    Raises:
        TokenizerError: the vocabulary is larger than the text supports, or smaller than its alphabet needs.
        ArtifactError: `text` is not a text artifact, or `out` cannot be written.
    """
    source = Artifact.load(text, Kind.TEXT)
    settings = recipe.tokenizer
    lines = (line for document in load_split(source, "train") for line in document.text.splitlines() if line.strip())
    model = _train_model(islice(lines, settings.sample_lines), settings.vocabulary, settings.character_coverage)
    with artifact.create(out, Kind.TOKENIZER) as draft:
        (draft.folder / _MODEL).write_bytes(model)
        draft.facts = {
            "language": source.manifest.language,
            "tokenizer_hash": sha256_of(draft.folder / _MODEL),
            "data_hashes": {"text": source.fingerprint},
            "recipe": settings.model_dump(mode="json"),
            "details": {"special_ids": dict(zip(SPECIAL_ROLES, range(len(SPECIAL_PIECES)), strict=True))},
        }
    return Artifact.load(out, Kind.TOKENIZER)


def _train_model(lines: Iterable[str], vocabulary: int, character_coverage: float) -> bytes:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_counted(lines),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocabulary,
            character_coverage=character_coverage,
            bos_id=BEGIN,
            pad_id=PAD,
            eos_id=END,
            unk_id=UNKNOWN,
            bos_piece=SPECIAL_PIECES[BEGIN],
            pad_piece=SPECIAL_PIECES[PAD],
            eos_piece=SPECIAL_PIECES[END],
            unk_piece=SPECIAL_PIECES[UNKNOWN],
            user_defined_symbols=[],
            control_symbols=[SPECIAL_PIECES[MASK]],
            max_sentence_length=_LONGEST_LINE_BYTES,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise TokenizerError(
            f"a vocabulary of {vocabulary} pieces cannot be trained on this text: {_advice(str(error))}"
        ) from error
    return model.getvalue()


def _counted(lines: Iterable[str]) -> Iterator[str]:
    empty = True
    for line in lines:
        empty = False
        yield line
    if empty:
        raise TokenizerError("the training split has no lines of text to train a tokenizer on. Bring more text.")


def _advice(message: str) -> str:
    """What SentencePiece's message means for the recipe."""
    if too_high := re.search(r"too high.* a value <= (\d+)", message):
        return f"it supports {too_high[1]} at most. Lower tokenizer.vocabulary to that, or bring more text."
    if too_low := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return (
            f"its characters and the special tokens alone are {too_low[1]}. "
            "Raise tokenizer.vocabulary to that or more, or lower tokenizer.character_coverage."
        )
    return f"SentencePiece can make nothing of it ({message.strip()}). Bring other text, or more."

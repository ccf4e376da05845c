"""A language's tokenizer: a SentencePiece unigram model that Lingraft trains, or that of an imported primary.

Trained ones have their special tokens at `DEFAULT_SPECIAL_IDS`; an imported one keeps its ids, found by role.
"""

import contextlib
import io
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import sha256_of
from lingraft.artifacts.manifest import Kind, read_manifest
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.data.bilingual_dictionary import learned_hashes
from lingraft.data.parallel_text import read_pairs, without_held_out
from lingraft.data.tokenizer.borrowed_pieces import choose_borrowed, lower_cases
from lingraft.data.tokenizer.normalisation import lower_case_rules
from lingraft.data.tokenizer.pieces import OwnPieces, PieceSpans, SpecialIds, SpecialPieces, Surface, marked_surface
from lingraft.data.tokenizer.sampling import CorpusProfile, sample_lines, training_lines
from lingraft.data.tokenizer.sentencepiece_model import borrowed, round_scores, with_borrowed, without_rules_path
from lingraft.errors import ArtifactError, RecipeError, TokenizerError

DEFAULT_SPECIAL_IDS: SpecialIds = SpecialPieces(begin=0, pad=1, end=2, unknown=3, mask=4)
SPECIAL_PIECES: SpecialPieces[str] = SpecialPieces("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_MODEL = "sentencepiece.model"
_FAST_SUFFIX = ".json"
TOKENIZER_FILES = (_MODEL, f"tokenizer{_FAST_SUFFIX}")
"""File names of a trained tokenizer, and of an imported primary's."""
_CARRIERS = (Kind.PRIMARY, Kind.EMBEDDINGS)
"""Kinds of artifacts that contain a tokenizer, beside tokenizers themselves."""
_FEW_TEXTS = 8
"""Number of texts below which SentencePiece takes longer to start its threads than to encode them."""
_LONGEST_LINE_BYTES = 1 << 30
"""Longest line in training; SentencePiece's default of 4,192 bytes silently leaves longer lines out."""


class TooManyPiecesError(TokenizerError):
    """The vocabulary has more pieces than the text supports."""

    def __init__(self, message: str, supported: int) -> None:
        super().__init__(message)
        self.supported = supported


class _Engine(Protocol):
    """A library with one model file; `Tokenizer` describes its methods."""

    def __len__(self) -> int: ...
    def encode(self, text: str) -> list[int]: ...
    def encode_all(self, texts: list[str]) -> list[list[int]]: ...
    def encode_spans(self, text: str) -> PieceSpans: ...
    def pieces(self) -> list[str]: ...
    def surfaces(self) -> list[Surface | None]: ...


class _SentencePieceEngine:
    """Engine by SentencePiece, for tokenizers that Lingraft trains."""

    def __init__(self, model: Path) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_file=str(model))

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, text: str) -> list[int]:
        return list(self._processor.encode(text))

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        if len(texts) < _FEW_TEXTS:
            return [self.encode(text) for text in texts]
        encoded: list[list[int]] = self._processor.encode(texts, num_threads=-1)
        return encoded

    def encode_spans(self, text: str) -> PieceSpans:
        found = self._processor.encode(text, out_type="offset_mapping")
        return PieceSpans(found["ids"], [start for start, _ in found["offsets"]], [end for _, end in found["offsets"]])

    def pieces(self) -> list[str]:
        return [str(self._processor.id_to_piece(index)) for index in range(len(self))]

    def surfaces(self) -> list[Surface | None]:
        control = self._processor.is_control, self._processor.is_unknown
        special = [any(is_special(index) for is_special in control) for index in range(len(self))]
        return [None if hidden else marked_surface(piece) for hidden, piece in zip(special, self.pieces(), strict=True)]


def _engine(model: Path) -> _Engine:
    if model.suffix != _FAST_SUFFIX:
        return _SentencePieceEngine(model)
    from lingraft.data.tokenizer.fast_engine import FastEngine

    return FastEngine.load(model)


@dataclass(frozen=True)
class Tokenizer:
    """Tokenizer of a language."""

    language: str
    model: Path
    """SentencePiece model, or a Hugging Face `tokenizer.json`."""
    hash: str
    special: SpecialIds
    lender: str
    """Hash of the source's tokenizer that pieces are borrowed from; empty if none are."""
    borrowed_B: NDArray[np.int32] = field(compare=False)
    """The source's ids of the last B pieces, which stand behind the tokenizer's own."""
    _engine: _Engine

    @classmethod
    def load(cls, folder: Path, language: str | None = None) -> "Tokenizer":
        """Open a tokenizer artifact, or the tokenizer of a primary or of embeddings."""
        kind = read_manifest(folder).kind
        found = Artifact.load(folder, kind if kind in _CARRIERS else Kind.TOKENIZER)
        actual = str(found.manifest.language)
        if language is not None and actual != language:
            raise TokenizerError(f"{folder} is the tokenizer of {actual!r}, not of {language!r}. Train one for it.")
        return cls.from_artifact(found)

    @classmethod
    def from_artifact(cls, artifact: Artifact) -> "Tokenizer":
        """Open the tokenizer of an artifact that contains one."""
        manifest = artifact.manifest
        found = [name for name in TOKENIZER_FILES if name in manifest.files]
        if len(found) != 1:
            raise ArtifactError(
                f"{artifact.folder} has tokenizer files {found}, and must have one of {list(TOKENIZER_FILES)}. Make "
                "the artifact again, or fetch it anew."
            )
        [file] = found
        special = (
            manifest.detail("special_ids", SpecialIds) if "special_ids" in manifest.details else DEFAULT_SPECIAL_IDS
        )
        return cls.from_file(artifact.folder / file, str(manifest.language), special)

    @classmethod
    def from_file(cls, model: Path, language: str, special: SpecialIds = DEFAULT_SPECIAL_IDS) -> "Tokenizer":
        """Open a SentencePiece model or a Hugging Face `tokenizer.json` outside an artifact."""
        engine = _engine(model)
        found = borrowed(b"" if model.suffix == _FAST_SUFFIX else model.read_bytes())
        return cls(language, model, sha256_of(model), special, *found, engine)

    def __len__(self) -> int:
        return len(self._engine)

    @property
    def own(self) -> OwnPieces:
        """Pieces that are not borrowed."""
        return OwnPieces(self.special, self.surfaces()[: len(self) - len(self.borrowed_B)])

    def require_lender(self, source: "Tokenizer") -> None:
        """Refuse a source whose pieces are not those that are borrowed."""
        if self.lender and self.lender != source.hash:
            raise TokenizerError(
                f"the tokenizer of {self.language!r} borrows pieces of tokenizer {self.lender}, not of {source.hash} "
                f"of {source.language!r}. Train it again with this primary (`lingraft tokenize --source`), or take the "
                "primary that it was trained for."
            )

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens."""
        return self._engine.encode(text)

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts, computed on all cores."""
        return self._engine.encode_all(list(texts))

    def encode_spans(self, text: str) -> PieceSpans:
        """Return the ids of a text, with the characters that each piece stands for."""
        return self._engine.encode_spans(text)

    def pieces(self) -> list[str]:
        """Return the piece of every id, as the tokenizer's own library writes it."""
        return self._engine.pieces()

    def surfaces(self) -> list[Surface | None]:
        """Return the surface of every id; None for special pieces and for those that are no text by themselves."""
        return self._engine.surfaces()


def train_tokenizer(recipe: Recipe, text: Path, out: Path, source: Path | None = None) -> Artifact:
    """Train a language's tokenizer on a sample of the training split of its text, and on sentences that it learns from.

    The text is read twice, line by line: to find its size and script, and to sample from it. Of sentence pairs, the
    language's sides count as lines of the text, so that words with a known translation become pieces. A new language's
    tokenizer borrows pieces of the source's if the recipe says so, and lower-cases if the source's does. It is the
    source's where nothing shows what other pieces would mean.

    Args:
        recipe: recipe, of which [tokenizer] counts.
        text: text artifact of the language.
        out: folder of the tokenizer.
        source: primary or tokenizer of the source language, to borrow from.

    Raises:
        TooManyPiecesError: the vocabulary is larger than the text supports.
    """
    read = Artifact.load(text, Kind.TEXT)
    settings = recipe.tokenizer
    language = str(read.manifest.language)
    lender = _lender(recipe, language, source)
    if lender and recipe.keeps_tokenizer(language):
        return _keep(lender, read, out)
    profile = CorpusProfile.of(read)
    coverage = settings.character_coverage or profile.character_coverage
    sampled = profile.sample_size(settings.sample_lines)
    lower_case = lender is not None and lower_cases(lender)
    lines = chain(sample_lines(training_lines(read), profile.lines, sampled), _translated_lines(recipe, language))
    model = train_sentencepiece(lines, settings.vocabulary, coverage, lower_case)
    details: dict[str, Any] = {}
    if lender:
        added = choose_borrowed(model, lender)
        model = with_borrowed(model, lender.hash, added)
        details = {"borrowed": len(added), "lower_case": lower_case}
    with artifact.create(out, Kind.TOKENIZER) as draft:
        (draft.folder / _MODEL).write_bytes(model)
        draft.facts = {
            "language": read.manifest.language,
            "tokenizer_hash": sha256_of(draft.folder / _MODEL),
            "data_hashes": {
                "text": read.fingerprint,
                **({"source_tokenizer": lender.hash} if lender else {}),
                **learned_hashes(recipe, language),
            },
            "recipe": settings.model_dump(mode="json"),
            "details": {
                "special_ids": DEFAULT_SPECIAL_IDS._asdict(),
                "character_coverage": coverage,
                "sample": {"lines": sampled, "of_lines": profile.lines},
                **details,
            },
        }
    return Artifact.load(out, Kind.TOKENIZER)


def _translated_lines(recipe: Recipe, language: str) -> Iterator[str]:
    """Yield the language's sides of the sentence pairs that it learns from."""
    if files := recipe.learned_pairs(language):
        yield from (pair.target for pair in without_held_out(read_pairs(files, (recipe.source.language, language))))


def _keep(lender: Tokenizer, text: Artifact, out: Path) -> Artifact:
    """Write the source's tokenizer as that of a language with some text."""
    language = text.manifest.language
    say(
        f"{language!r} keeps the source's tokenizer and rows: nothing shows what its words mean. Give sentence pairs, "
        "a dictionary, or text of the source about the same things."
    )
    with artifact.create(out, Kind.TOKENIZER) as draft:
        shutil.copyfile(lender.model, draft.folder / lender.model.name)
        draft.facts = {
            "language": language,
            "tokenizer_hash": lender.hash,
            "data_hashes": {"text": text.fingerprint, "source_tokenizer": lender.hash},
            "details": {"special_ids": lender.special._asdict()},
        }
    return Artifact.load(out, Kind.TOKENIZER)


def _lender(recipe: Recipe, language: str, source: Path | None) -> Tokenizer | None:
    """Return the tokenizer to borrow from; None if nothing is borrowed."""
    borrows = recipe.tokenizer.borrow and language != recipe.source.language
    if borrows and source is None:
        raise RecipeError(
            f"tokenizer.borrow is true, so that the tokenizer of {language!r} borrows the source's pieces, but the "
            "source's tokenizer is missing. Give the primary (--source), or leave tokenizer.borrow out."
        )
    if source and not borrows:
        raise RecipeError(
            f"the tokenizer of {language!r} borrows nothing from {source}: tokenizer.borrow is "
            f"{str(recipe.tokenizer.borrow).lower()}, and the source language is {recipe.source.language!r}. Set "
            "tokenizer.borrow = true for another language, or leave --source out."
        )
    return Tokenizer.load(source, recipe.source.language) if source else None


def train_sentencepiece(
    lines: Iterable[str], vocabulary: int, character_coverage: float, lower_case: bool = False
) -> bytes:
    """Train a SentencePiece model on lines of text; with `lower_case`, it lower-cases what it reads."""
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, _explained(vocabulary):
        rules: dict[str, Any] = {}
        if lower_case:
            rules["normalization_rule_tsv"] = _written(Path(folder), lower_case_rules())
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_require_lines(lines),
            model_writer=model,
            model_type="unigram",
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
            user_defined_symbols=[],
            control_symbols=[SPECIAL_PIECES.mask],
            max_sentence_length=_LONGEST_LINE_BYTES,
            minloglevel=2,
            **rules,
        )
    return without_rules_path(round_scores(model.getvalue()))


def _written(folder: Path, rules: str) -> str:
    """Write rules into a file, and return its name."""
    (folder / "rules.tsv").write_text(rules, encoding="utf-8")
    return str(folder / "rules.tsv")


@contextlib.contextmanager
def _explained(vocabulary: int) -> Iterator[None]:
    """Explain SentencePiece's errors."""
    try:
        yield
    except RuntimeError as error:
        raise _training_error(vocabulary, str(error)) from error


def _require_lines(lines: Iterable[str]) -> Iterator[str]:
    empty = True
    for line in lines:
        empty = False
        yield line
    if empty:
        raise TokenizerError("the training split has no lines of text to train a tokenizer on. Give more text.")


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

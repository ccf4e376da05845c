"""A language's tokenizer, a `tokenizer.json`: trained by Lingraft, or that of an imported primary.

Trained ones have their special tokens at `DEFAULT_SPECIAL_IDS`; an imported one keeps its ids, found by role. Special
pieces are inserted where sequences are built: text that spells one out, such as `</s>`, is tokenized like any other.
"""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding
from tokenizers import Tokenizer as Fast

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import sha256_of
from lingraft.artifacts.manifest import Kind, read_manifest
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SPACE_MARK, OwnPieces, PieceSpans, SpecialIds, Surface
from lingraft.data.tokenizer.surfaces import Reading, reading_of
from lingraft.data.tokenizer.unigram import BORROWED
from lingraft.errors import TokenizerError

TOKENIZER_JSON = "tokenizer.json"
_CARRIERS = (Kind.PRIMARY, Kind.EMBEDDINGS)
"""Kinds of artifacts that contain a tokenizer, beside tokenizers themselves."""


@dataclass(frozen=True)
class Tokenizer:
    """Tokenizer of a language. Its length is one more than the highest id, since every id needs a row of a table."""

    language: str
    model: Path
    """Its `tokenizer.json`."""
    hash: str
    special: SpecialIds
    lender: str
    """Hash of the source's tokenizer that pieces are borrowed from; empty if none are."""
    borrowed_B: NDArray[np.int32] = field(compare=False)
    """The source's ids of the last B pieces, which stand behind the tokenizer's own."""
    fast: Fast = field(compare=False, repr=False)
    """The file without truncation, padding and what it says about borrowed pieces."""
    _pieces: list[str] = field(compare=False, repr=False)
    _unknown: int | None = field(compare=False, repr=False)
    _hidden: frozenset[int] = field(compare=False, repr=False)
    """Ids of added tokens that are special."""
    _reading: Reading = field(compare=False, repr=False)

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
        if TOKENIZER_JSON not in manifest.files:
            raise TokenizerError(f"{artifact.folder} has no {TOKENIZER_JSON}. Make it again, or fetch it anew.")
        special = (
            manifest.detail("special_ids", SpecialIds) if "special_ids" in manifest.details else DEFAULT_SPECIAL_IDS
        )
        return cls.from_file(artifact.folder / TOKENIZER_JSON, str(manifest.language), special)

    @classmethod
    def from_file(cls, model: Path, language: str, special: SpecialIds = DEFAULT_SPECIAL_IDS) -> "Tokenizer":
        """Open a `tokenizer.json` outside an artifact."""
        try:
            raw = model.read_bytes()
            settings = json.loads(raw)
            lent = settings.pop(BORROWED, None)
            fast = Fast.from_buffer(json.dumps(settings).encode() if lent else raw)
            lender, ids = (lent["tokenizer"], lent["ids"]) if lent else ("", [])
            borrowed_B = np.array(ids, np.int32)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise TokenizerError(
                f"{model} is damaged, or no tokenizer.json: {error}. Fetch it anew, or save the fast tokenizer anew."
            ) from error
        fast.no_truncation()
        fast.no_padding()
        fast.encode_special_tokens = True
        return cls(
            language=language,
            model=model,
            hash=sha256_of(model),
            special=special,
            lender=lender,
            borrowed_B=borrowed_B,
            fast=fast,
            _pieces=_pieces(settings),
            _unknown=_unknown(settings["model"], fast),
            _hidden=frozenset(index for index, piece in fast.get_added_tokens_decoder().items() if piece.special),
            _reading=reading_of(fast, settings, model),
        )

    def __len__(self) -> int:
        return len(self._pieces)

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
        return self._plain(self.fast.encode(text, add_special_tokens=False))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts, computed on all cores."""
        return [self._plain(each) for each in self.fast.encode_batch_fast(list(texts), add_special_tokens=False)]

    def encode_spans(self, text: str) -> PieceSpans:
        """Return the ids of a text with the characters [start, end) of each, without spaces around them."""
        encoding = self.fast.encode(text, add_special_tokens=False)
        ids, starts, ends = self._plain(encoding), list[int](), list[int]()
        for index, (start, end), (following, _) in zip(
            ids, encoding.offsets, [*encoding.offsets, (len(text), 0)][1:], strict=True
        ):
            if self._pieces[index] == SPACE_MARK:  # the library gives it the character behind it
                end = start
            while end < following and unicodedata.combining(text[end]):  # joined to the last character
                end += 1
            while start < end and text[start].isspace():
                start += 1
            while start < end and text[end - 1].isspace():
                end -= 1
            starts.append(start)
            ends.append(end)
        return PieceSpans(ids, starts, ends)

    def pieces(self) -> list[str]:
        """Return the piece of every id as the file has it; "" for an id that it leaves out."""
        return list(self._pieces)

    def surfaces(self) -> list[Surface | None]:
        """Return the surface of every id; None for special pieces and for those that are no text by themselves."""
        return [
            self._reading(piece) if piece and index not in self._hidden else None
            for index, piece in enumerate(self._pieces)
        ]

    def _plain(self, encoding: Encoding) -> list[int]:
        """Return the ids, with special pieces that a unigram model found in the text replaced by the unknown piece."""
        ids: list[int] = encoding.ids
        if self._unknown is None or self._hidden.isdisjoint(ids):
            return ids
        return [self._unknown if index in self._hidden else index for index in ids]


def _pieces(settings: dict[str, Any]) -> list[str]:
    """Return the pieces by id; a unigram model lists them with scores, the others map them to ids."""
    vocabulary = settings["model"]["vocab"]
    if isinstance(vocabulary, dict):
        by_id = {index: piece for piece, index in vocabulary.items()}
    else:
        by_id = {index: piece for index, (piece, _) in enumerate(vocabulary)}
    by_id |= {added["id"]: added["content"] for added in settings.get("added_tokens", ())}
    return [by_id.get(index, "") for index in range(max(by_id, default=-1) + 1)]


def _unknown(model: dict[str, Any], tokenizer: Fast) -> int | None:
    """Return the id of the unknown piece, which models store as an id (unigram) or as a piece (the others)."""
    piece = model.get("unk_token")
    found: int | None = model.get("unk_id") if piece is None else tokenizer.token_to_id(piece)
    return found

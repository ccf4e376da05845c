"""Engine for the tokenizer of an imported primary: a Hugging Face `tokenizer.json`.

Special pieces are inserted by role where sequences are built. Text that spells one out, such as `</s>`, is tokenized
like any other text, as SentencePiece does with the models that Lingraft trains.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lingraft.data.tokenizer.pieces import SPACE_MARK, PieceSpans, Surface, marked_surface
from lingraft.errors import MissingExtraError, TokenizerError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

Reading = Callable[[str], Surface | None]
"""Function from a piece to its surface; None if it is no text by itself."""
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")


class FastEngine:
    """Engine by the `tokenizers` library: byte-level BPE, WordPiece, or pieces with SentencePiece's mark.

    Its length is one more than the highest id, because every id needs a row of the token table.
    """

    def __init__(self, tokenizer: "Tokenizer", pieces: list[str], reading: Reading, unknown: int | None) -> None:
        self._tokenizer, self._pieces, self._reading, self._unknown = tokenizer, pieces, reading, unknown
        added = tokenizer.get_added_tokens_decoder()
        self._special = frozenset(index for index, piece in added.items() if piece.special)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Open a `tokenizer.json`, without its truncation and padding."""
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError as error:
            raise MissingExtraError("tokenizers", "huggingface") from error
        try:
            raw = path.read_bytes()
            tokenizer, settings = Tokenizer.from_buffer(raw), json.loads(raw)
        except (OSError, ValueError) as error:
            raise TokenizerError(
                f"{path} is damaged, or no tokenizer.json: {error}. Fetch it anew, or save the fast tokenizer anew."
            ) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        reading = _reading(tokenizer, settings, path)
        return cls(tokenizer, _pieces(settings), reading, _unknown(settings["model"], tokenizer))

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens."""
        return self._plain(self._tokenizer.encode(text, add_special_tokens=False))

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of many texts, computed on all cores."""
        return [self._plain(each) for each in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def encode_spans(self, text: str) -> PieceSpans:
        """Return the ids of a text with the characters [start, end) of each, without spaces around them."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        spans = [_trimmed(text, start, end) for start, end in encoding.offsets]
        return PieceSpans(self._plain(encoding), [start for start, _ in spans], [end for _, end in spans])

    def pieces(self) -> list[str]:
        """Return the piece of every id as the file has it; "" for an id that it leaves out."""
        return list(self._pieces)

    def surfaces(self) -> list[Surface | None]:
        """Return the surface of every id; None for special pieces and for those that are no text by themselves."""
        return [
            self._reading(piece) if piece and index not in self._special else None
            for index, piece in enumerate(self._pieces)
        ]

    def _plain(self, encoding: "Encoding") -> list[int]:
        """Return the ids, with special pieces that a unigram model found in the text replaced by the unknown piece."""
        ids: list[int] = encoding.ids
        if self._unknown is None or self._special.isdisjoint(ids):
            return ids
        return [self._unknown if index in self._special else index for index in ids]


def _pieces(settings: dict[str, Any]) -> list[str]:
    """Return the pieces by id; a unigram model lists them with scores, the others map them to ids."""
    vocabulary = settings["model"]["vocab"]
    if isinstance(vocabulary, dict):
        by_id = {index: piece for piece, index in vocabulary.items()}
    else:
        by_id = {index: piece for index, (piece, _) in enumerate(vocabulary)}
    by_id |= {added["id"]: added["content"] for added in settings.get("added_tokens", ())}
    return [by_id.get(index, "") for index in range(max(by_id, default=-1) + 1)]


def _unknown(model: dict[str, Any], tokenizer: "Tokenizer") -> int | None:
    """Return the id of the unknown piece, which models store as an id (unigram) or as a piece (the others)."""
    piece = model.get("unk_token")
    found: int | None = model.get("unk_id") if piece is None else tokenizer.token_to_id(piece)
    return found


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def _reading(tokenizer: "Tokenizer", settings: dict[str, Any], path: Path) -> Reading:
    """Return how pieces of this file read, by its model, normalizer, pre-tokenizer and decoder."""
    kind = type(tokenizer.model).__name__
    around = [settings.get(part) for part in ("normalizer", "pre_tokenizer", "decoder")]
    steps, marked = set(_types(around)), SPACE_MARK in json.dumps(around, ensure_ascii=False)
    if kind == "WordPiece":
        return _continued(tokenizer)
    if kind == "BPE" and "ByteLevel" in steps:
        return _from_bytes
    if kind in ("Unigram", "BPE") and marked:
        return _from_marked
    raise TokenizerError(
        f"{path} has a {kind} model with {sorted(steps) or 'nothing'} around it: how its pieces read as text "
        "is not known. Take a checkpoint with byte-level BPE, WordPiece or SentencePiece pieces."
    )


def _types(node: Any) -> Iterator[str]:
    """Yield the types of all steps in a part of the file, including nested sequences."""
    if isinstance(node, dict):
        if isinstance(kind := node.get("type"), str):
            yield kind
        node = node.values()
    if isinstance(node, Iterable) and not isinstance(node, str):
        for each in node:
            yield from _types(each)


def _continued(tokenizer: "Tokenizer") -> Reading:
    """Return how pieces of WordPiece read, in which a prefix marks the continuation of a word.

    Characters that are always words of their own, as punctuation and Chinese are in BERT, never have the prefix, so its
    lack does not mark a word's beginning. Their pieces with the prefix never occur, and have untrained rows.
    """
    model: Any = tokenizer.model
    prefix = model.continuing_subword_prefix

    def reading(piece: str) -> Surface | None:
        text, initial = piece.removeprefix(prefix), not piece.startswith(prefix)
        if len(text) != 1 or not _stands_alone(text, tokenizer):
            return Surface(text, initial)
        return Surface(text, None) if initial else None

    return reading


def _stands_alone(character: str, tokenizer: "Tokenizer") -> bool:
    """Return whether a character is a word of its own even inside a word and beside itself."""
    if tokenizer.pre_tokenizer is None:
        return False
    text = f"a{character}{character}a"
    normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)] == ["a", character, character, "a"]


def _from_marked(piece: str) -> Surface | None:
    """Read a piece with SentencePiece's mark; byte pieces are no text by themselves."""
    return None if _BYTE_PIECE.fullmatch(piece) else marked_surface(piece)


def _from_bytes(piece: str) -> Surface | None:
    """Read a piece of byte-level BPE, where a character stands for a byte and a leading space begins a word."""
    try:
        text = bytes(_BYTE_OF[character] for character in piece).decode()
    except (KeyError, UnicodeDecodeError):  # a piece added later, or a part of a character
        return None
    return Surface(text.removeprefix(" "), text.startswith(" "))


def _byte_characters() -> dict[str, int]:
    """Return the bytes of GPT-2's alphabet: printable ones are themselves, the others characters from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_OF = _byte_characters()

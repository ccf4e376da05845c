"""How the pieces of a `tokenizer.json` read: byte-level BPE, WordPiece, or pieces with SentencePiece's mark."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from lingraft.data.tokenizer.pieces import SPACE_MARK, Surface
from lingraft.errors import TokenizerError

Reading = Callable[[str], Surface | None]
"""Function from a piece to its surface; None if it is no text by itself."""
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")


def reading_of(tokenizer: Tokenizer, settings: dict[str, Any], path: Path) -> Reading:
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


def _continued(tokenizer: Tokenizer) -> Reading:
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


def _stands_alone(character: str, tokenizer: Tokenizer) -> bool:
    """Return whether a character is a word of its own even inside a word and beside itself."""
    if tokenizer.pre_tokenizer is None:
        return False
    text = f"a{character}{character}a"
    normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)] == ["a", character, character, "a"]


def _from_marked(piece: str) -> Surface | None:
    """Read a piece with SentencePiece's mark; byte pieces are no text by themselves."""
    if _BYTE_PIECE.fullmatch(piece):
        return None
    return Surface(piece.removeprefix(SPACE_MARK).replace(SPACE_MARK, " "), piece.startswith(SPACE_MARK))


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

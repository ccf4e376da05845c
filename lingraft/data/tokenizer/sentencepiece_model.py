"""Reading and changing of SentencePiece model files without protobuf.

The file is a ModelProto in protobuf's wire format (sentencepiece_model.proto of SentencePiece 0.2): a sequence of
fields, each a key (field number and wire type), then a number, 4 or 8 bytes, or a length and as many bytes.

Where the last pieces are borrowed from a source's tokenizer, the file begins with a field of ours, which SentencePiece
leaves to extensions and passes over: the SHA-256 of that tokenizer's file, and the source's ids in 4 bytes each.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lingraft.errors import TokenizerError

SCORE_STEP = 2.0**-7
"""Step of the scores of tokenizers that Lingraft trains.

SentencePiece adds scores in 32 bits, so that segmentations with equal sums tie or not by how the sums before them were
rounded, and no other program agrees with it there. Multiples of 2^-7 add up exactly to 2^17, which is a text of some
16,000 pieces; ties are then ties for everyone. A step is less than 1% of a piece's probability.
"""
_PIECES, _TRAINER, _NORMALIZER, _BORROWED = 1, 2, 3, 200
_HASH_BYTES = 32
_PIECE_TEXT, _PIECE_SCORE, _PIECE_KIND = 1, 2, 3
_MODEL_TYPE, _UNIGRAM = 3, 1
_OTHER_MODELS = {2: "BPE", 3: "words", 4: "characters"}
_CHARSMAP, _RULES_PATH = 2, 6
_NUMBER, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
NORMAL, UNKNOWN, CONTROL = 1, 2, 3
"""Kinds of pieces in tokenizers that Lingraft trains."""


class Piece(NamedTuple):
    """A piece of the vocabulary."""

    text: str
    score: float
    """Logarithm of its probability."""
    kind: int


class _Field(NamedTuple):
    number: int
    key: int
    """Where the field begins, with its key."""
    start: int
    """Where its value begins."""
    stop: int
    value: int
    """Value of a number field; 0 for other fields."""


def pieces(model: bytes) -> list[Piece]:
    """Return all pieces, by id."""
    return [_piece(model, field) for field in _fields(model, 0, len(model)) if field.number == _PIECES]


class Borrowed(NamedTuple):
    """The last B pieces of a model, which are a source's."""

    lender: str
    """SHA-256 of the source tokenizer's file; empty if there are none."""
    ids_B: NDArray[np.int32]
    """The source's ids."""


class BorrowedPiece(NamedTuple):
    """A piece to be added to a model."""

    text: str
    score: float
    source_id: int


def borrowed(model: bytes) -> Borrowed:
    """Return where the last pieces are borrowed from."""
    first = next(_fields(model, 0, len(model)), None)
    if first is None or first.number != _BORROWED:
        return Borrowed("", np.empty(0, np.int32))
    found = model[first.start : first.stop]
    return Borrowed(found[:_HASH_BYTES].hex(), np.frombuffer(found, "<i4", offset=_HASH_BYTES).astype(np.int32))


def with_borrowed(model: bytes, lender: str, added: Iterable[BorrowedPiece]) -> bytes:
    """Return a model that has none, with borrowed pieces behind its own.

    Args:
        model: the model.
        lender: SHA-256 of the source tokenizer's file.
        added: pieces that it lacks.
    """
    listed = [*added]
    ids = np.array([piece.source_id for piece in listed], "<i4").tobytes()
    messages = (
        _message(_PIECE_TEXT, piece.text.encode()) + _key(_PIECE_SCORE, _FOUR_BYTES) + struct.pack("<f", piece.score)
        for piece in listed
    )
    head = _message(_BORROWED, bytes.fromhex(lender) + ids)
    return b"".join([head, model, *(_message(_PIECES, message) for message in messages)])


def charsmap(model: bytes) -> bytes:
    """Return the compiled normalisation rules (see `lingraft.huggingface.unigram`); empty if there are none."""
    found = _inside(model, _NORMALIZER, _CHARSMAP)
    return model[found.start : found.stop] if found else b""


def require_unigram(model: bytes, name: str, advice: str = "Train a tokenizer with `lingraft tokenize`.") -> None:
    """Check that a model is of the kind that Lingraft trains.

    Args:
        model: the file's bytes.
        name: name of the model, for messages.
        advice: what to do, for messages.
    """
    kind = _inside(model, _TRAINER, _MODEL_TYPE)
    if kind is not None and kind.value != _UNIGRAM:
        raise TokenizerError(
            f"{name} is not a unigram model but one of {_OTHER_MODELS.get(kind.value, kind.value)}. {advice}"
        )
    if strange := sorted({piece.text for piece in pieces(model) if piece.kind not in (NORMAL, UNKNOWN, CONTROL)}):
        raise TokenizerError(
            f"{name} has pieces that a tokenizer of ours has not (user-defined, unused or bytes): {strange[:5]}. "
            f"{advice}"
        )


def round_scores(model: bytes) -> bytes:
    """Return the model with every score rounded to a multiple of SCORE_STEP, and all other bytes as they are."""
    changed = bytearray(model)
    for piece in _fields(model, 0, len(model)):
        if piece.number == _PIECES:
            for field in _fields(model, piece.start, piece.stop):
                if field.number == _PIECE_SCORE:
                    struct.pack_into("<f", changed, field.start, _rounded(_float(model, field)))
    return bytes(changed)


def without_rules_path(model: bytes) -> bytes:
    """Return the model without the name of the file that its normalisation rules were compiled from."""
    if _inside(model, _NORMALIZER, _RULES_PATH) is None:
        return model
    parts = []
    for field in _fields(model, 0, len(model)):
        inner = _fields(model, field.start, field.stop) if field.number == _NORMALIZER else ()
        kept = [model[each.key : each.stop] for each in inner if each.number != _RULES_PATH]
        parts.append(_message(_NORMALIZER, b"".join(kept)) if kept else model[field.key : field.stop])
    return b"".join(parts)


def _rounded(score: float) -> float:
    return round(score / SCORE_STEP) * SCORE_STEP


def _float(model: bytes, field: _Field) -> float:
    (value,) = struct.unpack_from("<f", model, field.start)
    return float(value)


def _piece(model: bytes, piece: _Field) -> Piece:
    fields = {field.number: field for field in _fields(model, piece.start, piece.stop)}
    text, score, kind = (fields.get(number) for number in (_PIECE_TEXT, _PIECE_SCORE, _PIECE_KIND))
    return Piece(
        model[text.start : text.stop].decode() if text else "",
        _float(model, score) if score else 0.0,
        kind.value if kind else NORMAL,
    )


def _inside(model: bytes, outer: int, inner: int) -> _Field | None:
    """Return field `inner` of message `outer`; of repeated ones the last, which counts in protobuf."""
    found = None
    for message in _fields(model, 0, len(model)):
        if message.number == outer:
            for field in _fields(model, message.start, message.stop):
                found = field if field.number == inner else found
    return found


def _fields(data: bytes, start: int, stop: int) -> Iterator[_Field]:
    """Yield the fields of the message in data[start:stop]."""
    place = start
    while place < stop:
        begin_key = place
        key, place = _varint(data, place, stop)
        number, wire = key >> 3, key & 7
        value = 0
        if wire == _NUMBER:
            begin = place
            value, end = _varint(data, place, stop)
        elif wire == _BYTES:
            length, begin = _varint(data, place, stop)
            end = begin + length
        elif wire in (_FOUR_BYTES, _EIGHT_BYTES):
            begin, end = place, place + (4 if wire == _FOUR_BYTES else 8)
        else:
            raise _damaged(f"wire type {wire} at byte {place}")
        if end > stop:
            raise _damaged(f"a field that ends at byte {end} of {stop}")
        yield _Field(number, begin_key, begin, end, value)
        place = end


def _message(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + _as_varint(len(content)) + content


def _key(number: int, wire: int) -> bytes:
    return _as_varint(number << 3 | wire)


def _as_varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _varint(data: bytes, place: int, stop: int) -> tuple[int, int]:
    """Return a varint, and the place behind it."""
    value = shift = 0
    while place < stop:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
    raise _damaged(f"a number that does not end before byte {stop}")


def _damaged(what: str) -> TokenizerError:
    return TokenizerError(f"not a SentencePiece model: {what}. Train the tokenizer anew, or fetch it again.")

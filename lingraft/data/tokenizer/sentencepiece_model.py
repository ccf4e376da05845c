"""Reading and changing of SentencePiece model files without protobuf.

The file is a ModelProto in protobuf's wire format (sentencepiece_model.proto of SentencePiece 0.2): a sequence of
fields, each a key (field number and wire type), then a number, 4 or 8 bytes, or a length and as many bytes.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from lingraft.errors import TokenizerError

SCORE_STEP = 2.0**-7
"""Step of the scores of tokenizers that Lingraft trains.

SentencePiece adds scores in 32 bits, so that segmentations with equal sums tie or not by how the sums before them were
rounded, and no other program agrees with it there. Multiples of 2^-7 add up exactly to 2^17, which is a text of some
16,000 pieces; ties are then ties for everyone. A step is less than 1% of a piece's probability.
"""
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_KIND = 1, 2, 3
_MODEL_TYPE, _UNIGRAM = 3, 1
_CHARSMAP = 2
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
    start: int
    stop: int
    value: int
    """Value of a number field; 0 for other fields."""


def pieces(model: bytes) -> list[Piece]:
    """Return all pieces, by id.

    Raises:
        TokenizerError: the bytes are no SentencePiece model.
    """
    return [_piece(model, field) for field in _fields(model, 0, len(model)) if field.number == _PIECES]


def charsmap(model: bytes) -> bytes:
    """Return the compiled normalisation rules (see `lingraft.huggingface.unigram`); empty if there are none.

    Raises:
        TokenizerError: the bytes are no SentencePiece model.
    """
    found = _inside(model, _NORMALIZER, _CHARSMAP)
    return model[found.start : found.stop] if found else b""


def require_unigram(model: bytes, name: str) -> None:
    """Check that a model is of the kind that Lingraft trains.

    Args:
        model: the file's bytes.
        name: name of the model, for messages.

    Raises:
        TokenizerError: it is no unigram model, or has pieces of other kinds.
    """
    kind = _inside(model, _TRAINER, _MODEL_TYPE)
    if kind is not None and kind.value != _UNIGRAM:
        raise TokenizerError(f"{name} is not a unigram model. Train a tokenizer with `lingraft tokenize`.")
    if strange := sorted({piece.text for piece in pieces(model) if piece.kind not in (NORMAL, UNKNOWN, CONTROL)}):
        raise TokenizerError(
            f"{name} has pieces that a tokenizer of ours has not (user-defined, unused or bytes): {strange[:5]}. "
            "Train a tokenizer with `lingraft tokenize`."
        )


def round_scores(model: bytes) -> bytes:
    """Return the model with every score rounded to a multiple of SCORE_STEP, and all other bytes as they are.

    Raises:
        TokenizerError: the bytes are no SentencePiece model.
    """
    changed = bytearray(model)
    for piece in _fields(model, 0, len(model)):
        if piece.number == _PIECES:
            for field in _fields(model, piece.start, piece.stop):
                if field.number == _PIECE_SCORE:
                    struct.pack_into("<f", changed, field.start, _rounded(_float(model, field)))
    return bytes(changed)


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
        yield _Field(number, begin, end, value)
        place = end


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

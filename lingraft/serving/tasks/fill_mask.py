"""Fill-mask: the pieces that a masked one most probably was, with their probabilities.

Legend: M masks of a request, T tokens, D width, V vocabulary, K pieces of each mask.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from lingraft.bundle.format import FEATURES
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import RequestError
from lingraft.serving.bundle import Bundle, ServedLanguage
from lingraft.serving.tasks.handler import (
    TEXT,
    TOP_K,
    TRUNCATE,
    TRUNCATE_PARAMETER,
    RequestParameter,
    ResponseTensors,
    RowOutputs,
    TaskInput,
    TensorSpec,
    TokenRow,
    softmax,
    text_tensor,
)
from lingraft.serving.tasks.words import words

_PARAMETERS: Mapping[str, RequestParameter] = {
    TRUNCATE: TRUNCATE_PARAMETER,
    TOP_K: RequestParameter(5, "pieces told for each mask", minimum=1, maximum=100),
}
MASK = "<mask>"
"""How a mask is written in a text, whatever the tokenizer's own piece is."""
TEXT_INDEX = "text_index"
START = "start"
PIECE = "piece"
BEGINS_WORD = "begins_word"
PROBABILITY = "probability"
_MOST_MASKS = 32
"""Of one text: each takes a product with the whole table."""


@dataclass(frozen=True)
class _MaskPosition:
    """Where a mask stands."""

    text: int
    start: int
    """Character of the text."""
    token: int
    """Of the row."""


@dataclass(frozen=True)
class _EncodedFillMask:
    bundle: Bundle
    rows: Sequence[TokenRow]
    places: list[_MaskPosition]
    top_k: int

    def decode(self, outputs: Sequence[RowOutputs]) -> ResponseTensors:
        found = [self._best(place, outputs[place.text][FEATURES][place.token]) for place in self.places]
        ids_MK = np.stack([ids_K for ids_K, _ in found])
        surfaces = [
            [self._surface(place, int(index)) for index in ids_K]
            for place, ids_K in zip(self.places, ids_MK, strict=True)
        ]
        flat = list(chain.from_iterable(surfaces))
        return {
            TEXT_INDEX: np.array([place.text for place in self.places], np.int32),
            START: np.array([place.start for place in self.places], np.int32),
            PIECE: text_tensor([text for text, _ in flat]).reshape(ids_MK.shape),
            BEGINS_WORD: np.array([begins for _, begins in flat]).reshape(ids_MK.shape),
            PROBABILITY: np.stack([probability_K for _, probability_K in found]),
        }

    def _language(self, place: _MaskPosition) -> ServedLanguage:
        return self.bundle.languages[self.rows[place.text].language]

    def _best(
        self, place: _MaskPosition, features_D: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        language = self._language(place)
        assert language.bias_V is not None  # a primary's bundle has them
        probabilities_V = softmax(language.table.dot(features_D[None])[0] + language.bias_V)
        special = list(language.tokenizer.special)
        ranked_V = probabilities_V.copy()
        ranked_V[special] = -1.0
        best_K = np.argsort(-ranked_V, kind="stable")[: self.top_k]
        return best_K, probabilities_V[best_K]

    def _surface(self, place: _MaskPosition, index: int) -> tuple[str, bool]:
        """How a piece reads, and whether it begins a word."""
        return _surfaces(self._language(place).tokenizer)[index]


class FillMaskHandler:
    """Fill-mask; implements `AnswerKind`."""

    inputs = (TEXT,)
    detection_input = TEXT
    parameters = _PARAMETERS

    def outputs(self, labels: int, width: int) -> list[TensorSpec]:
        return [
            TensorSpec(TEXT_INDEX, "INT32", [-1], "text of each mask, from 0"),
            TensorSpec(START, "INT32", [-1], "character of that text at which the mask begins"),
            TensorSpec(PIECE, "BYTES", [-1, -1], "most probable pieces of each mask, best first"),
            TensorSpec(BEGINS_WORD, "BOOL", [-1, -1], "whether such a piece begins a word"),
            TensorSpec(PROBABILITY, "FP32", [-1, -1], "probabilities of these pieces"),
        ]

    def encode(self, bundle: Bundle, asked: TaskInput) -> _EncodedFillMask:
        rows = []
        places = []
        for number, (text, language) in enumerate(zip(asked.texts[TEXT], asked.languages, strict=True)):
            ids, found = _encode_text(
                number, text, bundle, bundle.languages[language].tokenizer, asked.parameters[TRUNCATE]
            )
            rows.append(TokenRow(language, ids, None, number))
            places += found
        # A vocabulary may be smaller than the number of pieces asked for; all masks tell as many.
        fewest = min(len(bundle.languages[language].tokenizer) for language in asked.languages) - 5
        return _EncodedFillMask(bundle, rows, places, min(asked.parameters[TOP_K], max(1, fewest)))


def _encode_text(
    number: int, text: str, bundle: Bundle, tokenizer: Tokenizer, truncate: bool
) -> tuple[list[int], list[_MaskPosition]]:
    """A text's ids, and its masks; the texts between masks are cut into pieces one by one."""
    starts = [match.start() for match in re.finditer(re.escape(MASK), text)]
    if not 0 < len(starts) <= _MOST_MASKS:
        raise RequestError(
            f"text {number} has {len(starts)} masks, written {MASK}; it must have one, and at most {_MOST_MASKS}."
        )
    between = tokenizer.encode_all(text.split(MASK))
    ids = [tokenizer.special.begin, *between[0]]
    tokens = []
    for pieces in between[1:]:
        tokens.append(len(ids))
        ids += [tokenizer.special.mask, *pieces]
    room = bundle.block_tokens - 1
    if len(ids) > room and (not truncate or tokens[-1] >= room):
        raise RequestError(
            f"text {number} has {len(ids) + 1} tokens, and the model reads at most {bundle.block_tokens}. Send a "
            f"shorter text, or one with its masks at the beginning, and the parameter {TRUNCATE!r} set to true."
        )
    places = [_MaskPosition(number, *place) for place in zip(starts, tokens, strict=True)]
    return [*ids[:room], tokenizer.special.end], places


def with_mask(text: str) -> str:
    """A text with a mask in place of the word in its middle; one that has a mask stays as it is."""
    found = [word for word in words(text) if text[word.start].isalnum()]
    if not found or MASK in text:
        return text
    word = found[len(found) // 2]
    return text[: word.start] + MASK + text[word.end :]


def _surfaces(tokenizer: Tokenizer) -> list[tuple[str, bool]]:
    return _surfaces_by_hash(_ByHash(tokenizer))


class _ByHash:
    """A tokenizer as a key: equal ones have equal files."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __hash__(self) -> int:
        return hash(self.tokenizer.hash)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByHash) and other.tokenizer.hash == self.tokenizer.hash


@lru_cache(maxsize=64)
def _surfaces_by_hash(key: _ByHash) -> list[tuple[str, bool]]:
    """How each piece reads; one that is no text by itself, such as a byte, as its tokenizer writes it."""
    pairs = zip(key.tokenizer.surfaces(), key.tokenizer.pieces(), strict=True)
    return [(piece, False) if surface is None else (surface.text, bool(surface.initial)) for surface, piece in pairs]

"""Fill-mask: the most probable pieces for each mask, with their probabilities.

Legend: M masks of a request, D width, V vocabulary, K pieces of each mask.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lingraft.bundle.format import FEATURES, OutputSizes
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import RequestError
from lingraft.serving.bundle import Bundle, ServedLanguage
from lingraft.serving.handlers.handler import (
    TEXT,
    TRUNCATE,
    TRUNCATES,
    EncodedRequest,
    RequestParameter,
    ResponseTensors,
    RowOutputs,
    TaskHandler,
    TaskInput,
    TensorSpec,
    TokenRow,
    one_each,
    softmax,
)
from lingraft.serving.handlers.words import words

MASK = "<mask>"
"""Mask in a request's text, whatever the tokenizer's own piece is."""
_TOP_K = "top_k"
_MOST_MASKS = 32
"""Limit for one text: each mask takes a product with the whole table."""


class _MaskPosition(NamedTuple):
    """Position of a mask: text of the request, character of the text, and token of its row."""

    text: int
    start: int
    token: int


def _outputs(_: OutputSizes) -> list[TensorSpec]:
    by_piece = {"piece": "BYTES", "begins_word": "BOOL", "probability": "FP32"}
    per_piece = [TensorSpec(name, datatype, [-1, -1]) for name, datatype in by_piece.items()]
    return [*one_each(text_index="INT32", start="INT32"), *per_piece]


def _encode(bundle: Bundle, request: TaskInput) -> EncodedRequest:
    rows: list[TokenRow] = []
    masks: list[_MaskPosition] = []
    languages = [bundle.languages[language] for language in request.languages]
    for place, (text, language) in enumerate(zip(request.texts[TEXT], request.languages, strict=True)):
        tokenizer = languages[place].tokenizer
        ids, found = _encode_text(place, text, tokenizer, bundle.shape.block_tokens, request.parameters[TRUNCATE])
        rows.append(TokenRow(language, ids, None, place))
        masks += found
    # All masks of a response have as many pieces, and a vocabulary may have fewer than the client wants.
    fewest = min(len(language.tokenizer) for language in languages) - 5
    top_k = min(request.parameters[_TOP_K], max(1, fewest))

    def decode(outputs: Sequence[RowOutputs]) -> ResponseTensors:
        best = [_best_pieces(languages[mask.text], outputs[mask.text][FEATURES][mask.token], top_k) for mask in masks]
        ids_MK = np.stack([ids_K for ids_K, _ in best])
        surfaces = [
            languages[mask.text].surfaces[index] for mask, ids_K in zip(masks, ids_MK, strict=True) for index in ids_K
        ]
        return {
            "text_index": np.array([mask.text for mask in masks], np.int32),
            "start": np.array([mask.start for mask in masks], np.int32),
            "piece": np.array([text for text, _ in surfaces], np.object_).reshape(ids_MK.shape),
            "begins_word": np.array([begins for _, begins in surfaces]).reshape(ids_MK.shape),
            "probability": np.stack([probability_K for _, probability_K in best]),
        }

    return EncodedRequest(rows, decode)


def _encode_text(
    place: int, text: str, tokenizer: Tokenizer, block_tokens: int, truncate: bool
) -> tuple[list[int], list[_MaskPosition]]:
    """Return a text's token ids and masks; the passages between masks are encoded one by one."""
    starts = [match.start() for match in re.finditer(re.escape(MASK), text)]
    if not 0 < len(starts) <= _MOST_MASKS:
        raise RequestError(
            f"text {place} has {len(starts)} masks, written {MASK}; it must have one, and at most {_MOST_MASKS}."
        )
    first, *others = tokenizer.encode_all(text.split(MASK))
    ids = [tokenizer.special.begin, *first]
    tokens = []
    for pieces in others:
        tokens.append(len(ids))
        ids += [tokenizer.special.mask, *pieces]
    room = block_tokens - 1
    if len(ids) > room and (not truncate or tokens[-1] >= room):
        raise RequestError(
            f"text {place} has {len(ids) + 1} tokens, and the model reads at most {block_tokens}. Send a "
            f"shorter text, or one with its masks at the beginning, and the parameter {TRUNCATE!r} set to true."
        )
    masks = [_MaskPosition(place, start, token) for start, token in zip(starts, tokens, strict=True)]
    return [*ids[:room], tokenizer.special.end], masks


def _best_pieces(
    language: ServedLanguage, features_D: NDArray[np.float32], top_k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the ids (K) of the most probable ordinary pieces, and their probabilities (K)."""
    assert language.bias_V is not None  # a primary's bundle has them
    probabilities_V = softmax(language.table.dot(features_D[None])[0] + language.bias_V)
    ranked_V = probabilities_V.copy()
    ranked_V[list(language.tokenizer.special)] = -1.0
    best_K = np.argsort(-ranked_V, kind="stable")[:top_k]
    return best_K, probabilities_V[best_K]


def with_mask(text: str) -> str:
    """Return a text with a mask in place of the word in its middle; a text that has a mask is returned unchanged."""
    found = [word for word in words(text) if text[word.start].isalnum()]
    if not found or MASK in text:
        return text
    word = found[len(found) // 2]
    return text[: word.start] + MASK + text[word.end :]


_PIECES = RequestParameter(5, "pieces returned for each mask", minimum=1, maximum=100)
FILL_MASK = TaskHandler((TEXT,), _outputs, _encode, TRUNCATES | {_TOP_K: _PIECES})

"""Named entities of texts, or words with their tags, with offsets into the text as it was sent.

A response lists the entities of all texts one after the other, since texts have different numbers of them.

Legend: W words.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from lingraft.config.tasks import INPUTS
from lingraft.serving.bundle import Bundle
from lingraft.serving.handlers.handler import (
    TEXT,
    TRUNCATE,
    TRUNCATES,
    EncodedRequest,
    ResponseTensors,
    RowOutputs,
    TaskHandler,
    TaskInput,
    TokenRow,
    columns,
    empty_text_error,
    one_each,
    require_length,
    softmax,
)
from lingraft.serving.handlers.words import Word, words
from lingraft.tasks.pairs import word_pieces
from lingraft.tasks.spans import spans

_OUTPUTS = one_each(text_index="INT32", entity="BYTES", kind="BYTES", start="INT32", end="INT32", score="FP32")


class _Words(NamedTuple):
    """Words of a text, and the token of its row at which each word begins that the model reads."""

    text: str
    words: list[Word]
    first_tokens: list[int]


def _encode(bundle: Bundle, request: TaskInput) -> EncodedRequest:
    encoded = [_encode_text(bundle, place, request) for place in range(len(request.languages))]

    def decode(outputs: Sequence[RowOutputs]) -> ResponseTensors:
        entities = [
            entity
            for place, ((_, tagged), output) in enumerate(zip(encoded, outputs, strict=True))
            for entity in _entities(place, tagged, output, bundle.labels)
        ]
        return columns(_OUTPUTS, entities)

    return EncodedRequest([row for row, _ in encoded], decode)


def _encode_text(bundle: Bundle, place: int, request: TaskInput) -> tuple[TokenRow, _Words]:
    text, language = request.texts[TEXT][place], request.languages[place]
    tokenizer = bundle.languages[language].tokenizer
    found = words(text)
    pieces = word_pieces([text[word.start : word.end] for word in found], tokenizer)
    ids = list(chain.from_iterable(pieces))
    room = bundle.shape.block_tokens - 2
    if not ids:
        raise empty_text_error(place)
    require_length(bundle, place, len(ids) + 2, request.parameters[TRUNCATE])
    starts = 1 + np.cumsum([0, *map(len, pieces)])[:-1]
    row = TokenRow(language, [tokenizer.special.begin, *ids[:room], tokenizer.special.end], None, place)
    return row, _Words(text, found, [int(start) for start in starts if start <= room])


def _entities(place: int, tagged: _Words, output: RowOutputs, tags: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    probabilities_WC = softmax(output["logits_BTC"][tagged.first_tokens])
    best_W = probabilities_WC.argmax(1)
    for span in sorted(spans([tags[best] for best in best_W]), key=lambda span: span.start):
        start = tagged.words[span.start].start
        end = tagged.words[span.end - 1].end
        score = float(probabilities_WC[span.start : span.end].max(1).mean())
        yield place, tagged.text[start:end], span.kind, start, end, score


ENTITY_RECOGNITION = TaskHandler(INPUTS["tags"], lambda _: _OUTPUTS, _encode, TRUNCATES)

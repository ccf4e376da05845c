"""Named entities of texts, or words with their tags, with offsets into the text as it was sent.

A response lists the entities of all texts one after the other, since texts have different numbers of them.

Legend: W words.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from lingraft.bundle.format import OutputSizes
from lingraft.config.tasks import INPUTS
from lingraft.serving.bundle import Bundle
from lingraft.serving.handlers.handler import (
    TEXT,
    TRUNCATE,
    TRUNCATE_PARAMETER,
    EncodedRequest,
    ResponseTensors,
    RowOutputs,
    TaskHandler,
    TaskInput,
    TensorSpec,
    TokenRow,
    empty_text_error,
    require_length,
    softmax,
    text_tensor,
)
from lingraft.serving.handlers.words import Word, words
from lingraft.tasks.pairs import word_pieces
from lingraft.tasks.spans import spans

ENTITY = "entity"
KIND = "kind"
SCORE = "score"


class _Words(NamedTuple):
    """Words of a text, and the token of its row at which each word begins that the model reads."""

    text: str
    words: list[Word]
    first_tokens: list[int]


class _Entity(NamedTuple):
    text: int
    entity: str
    kind: str
    start: int
    end: int
    score: float


def _outputs(_: OutputSizes) -> list[TensorSpec]:
    return [
        TensorSpec("text_index", "INT32", [-1], "text of each entity, from 0"),
        TensorSpec(ENTITY, "BYTES", [-1], "the entity, or word, as it stands in the text"),
        TensorSpec(KIND, "BYTES", [-1], "its kind, such as PER; of a word, its tag"),
        TensorSpec("start", "INT32", [-1], "its first character, counted in Unicode code points"),
        TensorSpec("end", "INT32", [-1], "one behind its last"),
        TensorSpec(SCORE, "FP32", [-1], "mean probability of its words' tags"),
    ]


def _encode(bundle: Bundle, request: TaskInput) -> EncodedRequest:
    texts = zip(request.texts[TEXT], request.languages, strict=True)
    encoded = [
        _encode_text(bundle, place, text, language, request.parameters[TRUNCATE])
        for place, (text, language) in enumerate(texts)
    ]

    def decode(outputs: Sequence[RowOutputs]) -> ResponseTensors:
        entities = [
            entity
            for place, ((_, tagged), output) in enumerate(zip(encoded, outputs, strict=True))
            for entity in _entities(place, tagged, output, bundle.labels)
        ]
        return {
            "text_index": np.array([each.text for each in entities], np.int32),
            ENTITY: text_tensor([each.entity for each in entities]),
            KIND: text_tensor([each.kind for each in entities]),
            "start": np.array([each.start for each in entities], np.int32),
            "end": np.array([each.end for each in entities], np.int32),
            SCORE: np.array([each.score for each in entities], np.float32),
        }

    return EncodedRequest([row for row, _ in encoded], decode)


def _encode_text(bundle: Bundle, place: int, text: str, language: str, truncate: bool) -> tuple[TokenRow, _Words]:
    tokenizer = bundle.languages[language].tokenizer
    found = words(text)
    pieces = word_pieces([text[word.start : word.end] for word in found], tokenizer)
    ids = list(chain.from_iterable(pieces))
    room = bundle.block_tokens - 2
    if not ids:
        raise empty_text_error(place)
    require_length(bundle, place, len(ids) + 2, truncate)
    starts = 1 + np.cumsum([0, *map(len, pieces)])[:-1]
    row = TokenRow(language, [tokenizer.special.begin, *ids[:room], tokenizer.special.end], None, place)
    return row, _Words(text, found, [int(start) for start in starts if start <= room])


def _entities(place: int, tagged: _Words, output: RowOutputs, tags: Sequence[str]) -> Iterator[_Entity]:
    probabilities_WC = softmax(output["logits_BTC"][tagged.first_tokens])
    best_W = probabilities_WC.argmax(1)
    for span in sorted(spans([tags[best] for best in best_W]), key=lambda span: span.start):
        start = tagged.words[span.start].start
        end = tagged.words[span.end - 1].end
        score = float(probabilities_WC[span.start : span.end].max(1).mean())
        yield _Entity(text=place, entity=tagged.text[start:end], kind=span.kind, start=start, end=end, score=score)


ENTITY_RECOGNITION = TaskHandler(INPUTS["tags"], _outputs, _encode, {TRUNCATE: TRUNCATE_PARAMETER})

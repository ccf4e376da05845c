"""Named entities of texts, with offsets into the text as it was sent.

A response lists the entities of all texts one after the other, since texts have different numbers of them.

Legend: N texts, T tokens, C tags, E entities.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from lingraft.config.tasks import INPUTS
from lingraft.serving.bundle import Bundle
from lingraft.serving.tasks.handler import (
    TEXT,
    TRUNCATE,
    TRUNCATE_PARAMETER,
    RequestParameter,
    ResponseTensors,
    RowOutputs,
    TaskInput,
    TensorSpec,
    TokenRow,
    empty_text_error,
    require_length,
    softmax,
    text_tensor,
)
from lingraft.serving.tasks.words import Word, words
from lingraft.tasks.spans import spans
from lingraft.tasks.word_pieces import word_pieces

_PARAMETERS: Mapping[str, RequestParameter] = {TRUNCATE: TRUNCATE_PARAMETER}
TEXT_INDEX = "text_index"
ENTITY = "entity"
KIND = "kind"
START = "start"
END = "end"
SCORE = "score"


class _Entity(NamedTuple):
    text: int
    entity: str
    kind: str
    start: int
    end: int
    score: float


class _Tagged(NamedTuple):
    """A text whose words are known."""

    text: str
    words: list[Word]
    first_tokens: list[int]
    """Token at which each word begins, of those that the model reads."""


@dataclass(frozen=True)
class _EncodedTagging:
    rows: Sequence[TokenRow]
    texts: list[_Tagged]
    tags: list[str]

    def decode(self, outputs: Sequence[RowOutputs]) -> ResponseTensors:
        found = [
            entity
            for place, output in enumerate(outputs)
            for entity in _entities(place, self.texts[place], output, self.tags)
        ]
        return {
            TEXT_INDEX: np.array([each.text for each in found], np.int32),
            ENTITY: text_tensor([each.entity for each in found]),
            KIND: text_tensor([each.kind for each in found]),
            START: np.array([each.start for each in found], np.int32),
            END: np.array([each.end for each in found], np.int32),
            SCORE: np.array([each.score for each in found], np.float32),
        }


def _entities(place: int, tagged: _Tagged, output: RowOutputs, tags: Sequence[str]) -> list[_Entity]:
    probabilities_WC = softmax(output["logits_BTC"][tagged.first_tokens])
    best_W = probabilities_WC.argmax(1)
    found = []
    for span in sorted(spans([tags[best] for best in best_W]), key=lambda span: span.start):
        start = tagged.words[span.start].start
        end = tagged.words[span.end - 1].end
        score = float(probabilities_WC[span.start : span.end].max(1).mean())
        found.append(_Entity(place, tagged.text[start:end], span.kind, start, end, score))
    return found


class EntityHandler:
    """Tagging; implements `AnswerKind`."""

    inputs = INPUTS["tags"]
    detection_input = TEXT
    parameters = _PARAMETERS

    def outputs(self, labels: int, width: int) -> list[TensorSpec]:
        return [
            TensorSpec(TEXT_INDEX, "INT32", [-1], "text of each entity, from 0"),
            TensorSpec(ENTITY, "BYTES", [-1], "the entity as it stands in the text"),
            TensorSpec(KIND, "BYTES", [-1], "its kind, such as PER"),
            TensorSpec(START, "INT32", [-1], "its first character, counted in Unicode code points"),
            TensorSpec(END, "INT32", [-1], "one behind its last"),
            TensorSpec(SCORE, "FP32", [-1], "mean probability of its words' tags"),
        ]

    def encode(self, bundle: Bundle, asked: TaskInput) -> _EncodedTagging:
        pairs = zip(asked.texts[TEXT], asked.languages, strict=True)
        cut = [_encode_text(place, *pair, bundle, asked.parameters[TRUNCATE]) for place, pair in enumerate(pairs)]
        return _EncodedTagging([row for row, _ in cut], [tagged for _, tagged in cut], bundle.labels)


def _encode_text(place: int, text: str, language: str, bundle: Bundle, truncate: bool) -> tuple[TokenRow, _Tagged]:
    tokenizer = bundle.languages[language].tokenizer
    found = words(text)
    pieces = word_pieces([text[word.start : word.end] for word in found], tokenizer)
    ids = list(chain.from_iterable(pieces))
    room = bundle.block_tokens - 2
    if not ids:
        raise empty_text_error(place)
    require_length(bundle, place, len(ids) + 2, truncate)
    begins = 1 + np.cumsum([0, *map(len, pieces)])[:-1]
    row = TokenRow(language, [tokenizer.special.begin, *ids[:room], tokenizer.special.end], None, place)
    return row, _Tagged(text, found, [int(begin) for begin in begins if begin <= room])

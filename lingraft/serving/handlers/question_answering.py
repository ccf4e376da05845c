"""Extractive question answering: passages of a context, found over all its windows, with offsets into the text as sent.

Legend: B windows, T tokens.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lingraft.config.tasks import INPUTS
from lingraft.errors import RequestError
from lingraft.serving.bundle import Bundle
from lingraft.serving.handlers.handler import (
    TRUNCATE,
    EncodedRequest,
    RequestParameter,
    ResponseTensors,
    RowOutputs,
    TaskHandler,
    TaskInput,
    TokenRow,
    columns,
    empty_text_error,
    one_each,
    softmax,
)
from lingraft.tasks import squad
from lingraft.tasks.squad_answers import answers_in
from lingraft.tasks.squad_windows import QuestionWindows, cut

_QUESTION, _CONTEXT = INPUTS["questions"]
_OUTPUTS = one_each(answer="BYTES", start="INT32", end="INT32", score="FP32", probability="FP32")
_MOST_WINDOWS = 256
"""Limit for one request: a long context and a short block make many windows."""


def _encode(bundle: Bundle, request: TaskInput) -> EncodedRequest:
    windows = [_encode_question(bundle, place, request) for place in range(len(request.languages))]
    if (count := sum(map(len, windows))) > _MOST_WINDOWS:
        raise RequestError(
            f"the contexts take {count} windows of {bundle.shape.block_tokens} tokens; at most {_MOST_WINDOWS} are "
            "read for one request. Send fewer or shorter ones."
        )
    rows = [
        TokenRow(language, *each.row(index), place)
        for place, (each, language) in enumerate(zip(windows, request.languages, strict=True))
        for index in range(len(each))
    ]

    def decode(outputs: Sequence[RowOutputs]) -> ResponseTensors:
        remaining = iter(outputs)
        best: list[tuple[Any, ...]] = []
        for place, each in enumerate(windows):
            passages = answers_in(each, [next(remaining)["logits_BT2"] for _ in range(len(each))])[0]
            if not passages:
                raise empty_text_error(place)
            probabilities = softmax(np.array([passage.score for passage in passages], np.float32))
            first = passages[0]
            best.append((first.text, first.start, first.end, first.score, probabilities[0]))
        return columns(_OUTPUTS, best)

    return EncodedRequest(rows, decode)


def _encode_question(bundle: Bundle, place: int, request: TaskInput) -> QuestionWindows:
    question, context = request.texts[_QUESTION][place], request.texts[_CONTEXT][place]
    # An empty answer makes `cut` look for none.
    unanswered = squad.Question(str(place), context, question, (squad.Answer("", 0),))
    windows = cut([unanswered], bundle.languages[request.languages[place]].tokenizer, bundle.shape)
    if not windows.asked[0] or not len(windows.passages[0]):
        raise empty_text_error(place)
    if windows.truncated and not request.parameters[TRUNCATE]:
        raise RequestError(
            f"question {place} takes more than half of the {bundle.shape.block_tokens} tokens that the model reads at "
            f"once. Send a shorter one, or set the parameter {TRUNCATE!r} to true to have only its beginning read."
        )
    return windows


QUESTION_ANSWERING = TaskHandler(
    INPUTS["questions"],
    lambda _: _OUTPUTS,
    _encode,
    {TRUNCATE: RequestParameter(False, "read only the beginning of a question that takes more than half of a window")},
    detection_input=_CONTEXT,
)

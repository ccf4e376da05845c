"""Extractive question answering: passages of a context, found over all its windows, with offsets into the text as sent.

Legend: B windows, T tokens.
"""

from collections.abc import Sequence

import numpy as np

from lingraft.bundle.format import OutputSizes
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
    TensorSpec,
    TokenRow,
    empty_text_error,
    softmax,
    text_tensor,
)
from lingraft.tasks import squad
from lingraft.tasks.squad_answers import Found, answers_in
from lingraft.tasks.squad_windows import QuestionWindows, cut

ANSWER = "answer"
_QUESTION, _CONTEXT = INPUTS["questions"]
_MOST_WINDOWS = 256
"""Limit for one request: a long context and a short block make many windows."""


def _outputs(_: OutputSizes) -> list[TensorSpec]:
    return [
        TensorSpec(ANSWER, "BYTES", [-1], "best passage of each context, as it stands there"),
        TensorSpec("start", "INT32", [-1], "its first character, counted in Unicode code points"),
        TensorSpec("end", "INT32", [-1], "one behind its last"),
        TensorSpec("score", "FP32", [-1], "its start logit plus end logit"),
        TensorSpec("probability", "FP32", [-1], "softmax of its score over the best 20 passages"),
    ]


def _encode(bundle: Bundle, request: TaskInput) -> EncodedRequest:
    questions = zip(request.texts[_QUESTION], request.texts[_CONTEXT], request.languages, strict=True)
    windows = [
        _encode_question(
            bundle=bundle,
            place=place,
            question=question,
            context=context,
            language=language,
            truncate=request.parameters[TRUNCATE],
        )
        for place, (question, context, language) in enumerate(questions)
    ]
    if (count := sum(map(len, windows))) > _MOST_WINDOWS:
        raise RequestError(
            f"the contexts take {count} windows of {bundle.block_tokens} tokens; at most {_MOST_WINDOWS} are read "
            "for one request. Send fewer or shorter ones."
        )
    rows = [
        TokenRow(language, *each.row(index), place)
        for place, (each, language) in enumerate(zip(windows, request.languages, strict=True))
        for index in range(len(each))
    ]

    def decode(outputs: Sequence[RowOutputs]) -> ResponseTensors:
        remaining = iter(outputs)
        best: list[tuple[Found, float]] = []
        for place, each in enumerate(windows):
            passages = answers_in(each, [next(remaining)["logits_BT2"] for _ in range(len(each))])[0]
            if not passages:
                raise empty_text_error(place)
            scores = softmax(np.array([passage.score for passage in passages], np.float32))
            best.append((passages[0], float(scores[0])))
        return {
            ANSWER: text_tensor([passage.text for passage, _ in best]),
            "start": np.array([passage.start for passage, _ in best], np.int32),
            "end": np.array([passage.end for passage, _ in best], np.int32),
            "score": np.array([passage.score for passage, _ in best], np.float32),
            "probability": np.array([probability for _, probability in best], np.float32),
        }

    return EncodedRequest(rows, decode)


def _encode_question(
    bundle: Bundle, place: int, question: str, context: str, language: str, truncate: bool
) -> QuestionWindows:
    # An empty answer makes `cut` look for none.
    unanswered = squad.Question(str(place), context, question, (squad.Answer("", 0),))
    windows = cut([unanswered], bundle.languages[language].tokenizer, bundle.shape)
    if not windows.asked[0] or not len(windows.passages[0]):
        raise empty_text_error(place)
    if windows.truncated and not truncate:
        raise RequestError(
            f"question {place} takes more than half of the {bundle.block_tokens} tokens that the model reads at "
            f"once. Send a shorter one, or set the parameter {TRUNCATE!r} to true to have only its beginning read."
        )
    return windows


QUESTION_ANSWERING = TaskHandler(
    INPUTS["questions"],
    _outputs,
    _encode,
    {TRUNCATE: RequestParameter(False, "read only the beginning of a question that takes more than half of a window")},
    detection_input=_CONTEXT,
)

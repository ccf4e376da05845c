"""Answers to questions: passages of a context, found over all its windows, with offsets into the text as it was sent.

Legend: N questions, B windows, T tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lingraft.config.tasks import INPUTS
from lingraft.errors import RequestError
from lingraft.serving.bundle import Bundle
from lingraft.serving.tasks.handler import (
    CONTEXT,
    QUESTION,
    TRUNCATE,
    RequestParameter,
    ResponseTensors,
    RowOutputs,
    TaskInput,
    TensorSpec,
    TokenRow,
    empty_text_error,
    softmax,
    text_tensor,
)
from lingraft.tasks import squad
from lingraft.tasks.squad_answers import Found, answers_in
from lingraft.tasks.squad_windows import Windows, cut

_PARAMETERS: Mapping[str, RequestParameter] = {
    TRUNCATE: RequestParameter(False, "read only the beginning of a question that takes more than half of a window")
}
ANSWER = "answer"
START = "start"
END = "end"
SCORE = "score"
PROBABILITY = "probability"
_MOST_WINDOWS = 256
"""Of one request: a long context and a short block make many."""


@dataclass(frozen=True)
class _EncodedQuestions:
    rows: Sequence[TokenRow]
    windows: list[Windows]
    """One question each."""

    def decode(self, outputs: Sequence[RowOutputs]) -> ResponseTensors:
        left = iter(outputs)
        best: list[tuple[Found, float]] = []
        for place, windows in enumerate(self.windows):
            found = answers_in(windows, [next(left)["logits_BT2"] for _ in range(len(windows))])[0]
            if not found:
                raise empty_text_error(place)
            scores = softmax(np.array([each.score for each in found], np.float32))
            best.append((found[0], float(scores[0])))
        return {
            ANSWER: text_tensor([found.text for found, _ in best]),
            START: np.array([found.start for found, _ in best], np.int32),
            END: np.array([found.end for found, _ in best], np.int32),
            SCORE: np.array([found.score for found, _ in best], np.float32),
            PROBABILITY: np.array([probability for _, probability in best], np.float32),
        }


class QuestionAnsweringHandler:
    """Extractive question answering; implements `AnswerKind`."""

    inputs = INPUTS["questions"]
    detection_input = CONTEXT
    parameters = _PARAMETERS

    def outputs(self, labels: int, width: int) -> list[TensorSpec]:
        return [
            TensorSpec(ANSWER, "BYTES", [-1], "best passage of each context, as it stands there"),
            TensorSpec(START, "INT32", [-1], "its first character, counted in Unicode code points"),
            TensorSpec(END, "INT32", [-1], "one behind its last"),
            TensorSpec(SCORE, "FP32", [-1], "its start logit plus end logit"),
            TensorSpec(PROBABILITY, "FP32", [-1], "softmax of its score over the best 20 passages"),
        ]

    def encode(self, bundle: Bundle, asked: TaskInput) -> _EncodedQuestions:
        pairs = zip(asked.texts[QUESTION], asked.texts[CONTEXT], asked.languages, strict=True)
        windows = [self._encode_question(bundle, place, *pair, asked) for place, pair in enumerate(pairs)]
        if (count := sum(map(len, windows))) > _MOST_WINDOWS:
            raise RequestError(
                f"the contexts take {count} windows of {bundle.block_tokens} tokens; at most {_MOST_WINDOWS} are read "
                "for one request. Send fewer or shorter ones."
            )
        rows = [
            TokenRow(language, *each.row(index), place)
            for place, (each, language) in enumerate(zip(windows, asked.languages, strict=True))
            for index in range(len(each))
        ]
        return _EncodedQuestions(rows, windows)

    def _encode_question(
        self, bundle: Bundle, place: int, question: str, context: str, language: str, asked: TaskInput
    ) -> Windows:
        # Its answer is not known, and `cut` looks for none in the first blank.
        unanswered = squad.Question(str(place), context, question, (squad.Answer("", 0),))
        windows = cut([unanswered], bundle.languages[language].tokenizer, bundle.shape)
        if not windows.asked[0] or not len(windows.passages[0]):
            raise empty_text_error(place)
        if windows.truncated and not asked.parameters[TRUNCATE]:
            raise RequestError(
                f"question {place} takes more than half of the {bundle.block_tokens} tokens that the model reads at "
                f"once. Send a shorter one, or set the parameter {TRUNCATE!r} to true to have only its beginning read."
            )
        return windows

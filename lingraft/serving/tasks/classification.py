"""Labels of texts, or of pairs of texts, with their probabilities.

Legend: N texts, C classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    encode_rows,
    softmax,
    text_tensor,
)

_PARAMETERS: Mapping[str, RequestParameter] = {TRUNCATE: TRUNCATE_PARAMETER}
LABEL = "label"
PROBABILITY = "probability"
PROBABILITIES = "probabilities"


@dataclass(frozen=True)
class _EncodedClassification:
    rows: Sequence[TokenRow]
    labels: list[str]

    def decode(self, outputs: Sequence[RowOutputs]) -> ResponseTensors:
        probabilities_NC = softmax(np.stack([output["logits_BC"] for output in outputs]))
        best_N = probabilities_NC.argmax(1)
        return {
            LABEL: text_tensor([self.labels[best] for best in best_N]),
            PROBABILITY: probabilities_NC.max(1),
            PROBABILITIES: probabilities_NC,
        }


@dataclass(frozen=True)
class ClassificationHandler:
    """Classification; implements `AnswerKind`."""

    pairs: bool
    parameters = _PARAMETERS
    detection_input = TEXT

    @property
    def inputs(self) -> tuple[str, ...]:
        return INPUTS["pairs" if self.pairs else "texts"]

    def outputs(self, labels: int, width: int) -> list[TensorSpec]:
        return [
            TensorSpec(LABEL, "BYTES", [-1], "most probable label of each text"),
            TensorSpec(PROBABILITY, "FP32", [-1], "its probability"),
            TensorSpec(PROBABILITIES, "FP32", [-1, labels], "of all labels, in the order of the metadata"),
        ]

    def encode(self, bundle: Bundle, asked: TaskInput) -> _EncodedClassification:
        return _EncodedClassification(encode_rows(bundle, asked, asked.parameters[TRUNCATE]), bundle.labels)

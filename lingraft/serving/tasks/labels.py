"""Labels of texts, or of pairs of texts, with their probabilities.

Legend: N texts, C classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lingraft.config.tasks import INPUTS
from lingraft.serving.bundle import Bundle
from lingraft.serving.tasks.kind import (
    TEXT,
    TRUNCATE,
    TRUNCATING,
    Answers,
    Asked,
    Outputs,
    Parameter,
    Row,
    Tensor,
    encoded,
    softmax,
    texts_of,
)

_PARAMETERS: Mapping[str, Parameter] = {TRUNCATE: TRUNCATING}
LABEL, PROBABILITY, PROBABILITIES = "label", "probability", "probabilities"


@dataclass(frozen=True)
class _Job:
    rows: Sequence[Row]
    labels: list[str]

    def answers(self, outputs: Sequence[Outputs]) -> Answers:
        probabilities_NC = softmax(np.stack([output["logits_BC"] for output in outputs]))
        best_N = probabilities_NC.argmax(1)
        return {
            LABEL: texts_of([self.labels[best] for best in best_N]),
            PROBABILITY: probabilities_NC.max(1),
            PROBABILITIES: probabilities_NC,
        }


@dataclass(frozen=True)
class Labels:
    """Classification; implements `AnswerKind`."""

    pairs: bool
    parameters = _PARAMETERS
    detected = TEXT

    @property
    def inputs(self) -> tuple[str, ...]:
        return INPUTS["pairs" if self.pairs else "texts"]

    def outputs(self, labels: int, width: int) -> list[Tensor]:
        return [
            Tensor(LABEL, "BYTES", [-1], "most probable label of each text"),
            Tensor(PROBABILITY, "FP32", [-1], "its probability"),
            Tensor(PROBABILITIES, "FP32", [-1, labels], "of all labels, in the order of the metadata"),
        ]

    def job(self, bundle: Bundle, asked: Asked) -> _Job:
        return _Job(encoded(bundle, asked, asked.parameters[TRUNCATE]), bundle.labels)

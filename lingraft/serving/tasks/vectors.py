"""Embeddings of texts: the mean of the last layer's states over a text's tokens, special ones included.

Legend: N texts, T tokens, D width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lingraft.bundle.format import HIDDEN
from lingraft.serving.bundle import Bundle
from lingraft.serving.tasks.kind import (
    NORMALIZE,
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
)

_PARAMETERS: Mapping[str, Parameter] = {
    TRUNCATE: TRUNCATING,
    NORMALIZE: Parameter(True, "divide each embedding by its length, so that products are cosines"),
}
EMBEDDING = "embedding"


@dataclass(frozen=True)
class _Job:
    rows: Sequence[Row]
    normalize: bool

    def answers(self, outputs: Sequence[Outputs]) -> Answers:
        means_ND = np.stack([output[HIDDEN].mean(0) for output in outputs])
        if self.normalize:
            means_ND /= np.linalg.norm(means_ND, axis=1, keepdims=True)
        return {EMBEDDING: means_ND}


class Vectors:
    """Embeddings; implements `AnswerKind`."""

    inputs = (TEXT,)
    detected = TEXT
    parameters = _PARAMETERS

    def outputs(self, labels: int, width: int) -> list[Tensor]:
        return [Tensor(EMBEDDING, "FP32", [-1, width], "embedding of each text")]

    def job(self, bundle: Bundle, asked: Asked) -> _Job:
        return _Job(encoded(bundle, asked, asked.parameters[TRUNCATE]), asked.parameters[NORMALIZE])

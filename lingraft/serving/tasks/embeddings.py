"""Embeddings of texts: the mean of the last layer's states over a text's tokens, special ones included.

Legend: N texts, T tokens, D width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lingraft.bundle.format import HIDDEN
from lingraft.serving.bundle import Bundle
from lingraft.serving.tasks.handler import (
    NORMALIZE,
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
)

_PARAMETERS: Mapping[str, RequestParameter] = {
    TRUNCATE: TRUNCATE_PARAMETER,
    NORMALIZE: RequestParameter(True, "divide each embedding by its length, so that products are cosines"),
}
EMBEDDING = "embedding"


@dataclass(frozen=True)
class _EncodedTexts:
    rows: Sequence[TokenRow]
    normalize: bool

    def decode(self, outputs: Sequence[RowOutputs]) -> ResponseTensors:
        means_ND = np.stack([output[HIDDEN].mean(0) for output in outputs])
        if self.normalize:
            means_ND /= np.linalg.norm(means_ND, axis=1, keepdims=True)
        return {EMBEDDING: means_ND}


class EmbeddingHandler:
    """Embeddings; implements `AnswerKind`."""

    inputs = (TEXT,)
    detection_input = TEXT
    parameters = _PARAMETERS

    def outputs(self, labels: int, width: int) -> list[TensorSpec]:
        return [TensorSpec(EMBEDDING, "FP32", [-1, width], "embedding of each text")]

    def encode(self, bundle: Bundle, asked: TaskInput) -> _EncodedTexts:
        return _EncodedTexts(encode_rows(bundle, asked, asked.parameters[TRUNCATE]), asked.parameters[NORMALIZE])

"""Embeddings of texts: the mean of the last layer's states over a text's tokens, special tokens included.

Legend: N texts, D width.
"""

from collections.abc import Sequence

import numpy as np

from lingraft.bundle.format import HIDDEN
from lingraft.serving.bundle import Bundle
from lingraft.serving.handlers.handler import (
    TEXT,
    TRUNCATE,
    TRUNCATE_PARAMETER,
    EncodedRequest,
    RequestParameter,
    ResponseTensors,
    RowOutputs,
    TaskHandler,
    TaskInput,
    TensorSpec,
    encode_rows,
)

_NORMALIZE = "normalize"


def _outputs(_: int, width: int) -> list[TensorSpec]:
    return [TensorSpec("embedding", "FP32", [-1, width], "embedding of each text")]


def _encode(bundle: Bundle, request: TaskInput) -> EncodedRequest:
    def decode(outputs: Sequence[RowOutputs]) -> ResponseTensors:
        means_ND = np.stack([output[HIDDEN].mean(0) for output in outputs])
        if request.parameters[_NORMALIZE]:
            means_ND /= np.linalg.norm(means_ND, axis=1, keepdims=True)
        return {"embedding": means_ND}

    return EncodedRequest(encode_rows(bundle, request), decode)


TEXT_EMBEDDING = TaskHandler(
    (TEXT,),
    _outputs,
    _encode,
    {
        TRUNCATE: TRUNCATE_PARAMETER,
        _NORMALIZE: RequestParameter(True, "divide each embedding by its length, so that products are cosines"),
    },
)

"""Vectors of texts: those of a retrieval task, or means of a primary's last layer over a text's tokens.

Legend: N texts, D width of the body, E width of a vector.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lingraft.bundle.format import HIDDEN, VECTORS, OutputSizes
from lingraft.config.tasks import INPUTS
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

EMBEDDING = "embedding"
INPUT_TYPE = "input_type"
OPENAI_PATH = "/v1/embeddings"
NO_PREFIX = "none"
_DEFAULT_PREFIX = "default"
_NORMALIZE = "normalize"
_STEPS = 255

_BINARY: Mapping[str, Callable[[NDArray[np.float32]], NDArray[np.int8] | NDArray[np.uint8]]] = {
    "binary": lambda vectors_NE: (np.packbits(vectors_NE > 0, axis=-1) ^ 128).view(np.int8),
    "ubinary": lambda vectors_NE: np.packbits(vectors_NE > 0, axis=-1),
}
"""One bit a value, as `sentence_transformers.quantize_embeddings` packs them."""
QUANTISED = ("int8", "uint8", *_BINARY)
"""Number formats of vectors beside float32."""
_DATATYPES = {"int8": "INT8", "uint8": "UINT8", "binary": "INT8", "ubinary": "UINT8"}


def output_name(dtype: str) -> str:
    """Return the name of the output that holds vectors in one of the formats of `QUANTISED`."""
    return f"{EMBEDDING}_{dtype}"


def _outputs(sizes: OutputSizes) -> list[TensorSpec]:
    packed = -(-sizes.width // 8)
    widths = dict.fromkeys(QUANTISED[:2], sizes.width) if sizes.has_ranges else {}
    meaning = "embedding of each text"
    quantised = [
        TensorSpec(output_name(dtype), _DATATYPES[dtype], [-1, width], f"{meaning}, in {dtype}", by_default=False)
        for dtype, width in (widths | dict.fromkeys(_BINARY, packed)).items()
    ]
    return [TensorSpec(EMBEDDING, "FP32", [-1, sizes.width], meaning), *quantised]


def _tensors(vectors_NE: NDArray[np.float32], ranges_2E: NDArray[np.float32] | None) -> ResponseTensors:
    tensors: ResponseTensors = {output_name(dtype): pack(vectors_NE) for dtype, pack in _BINARY.items()}
    if ranges_2E is not None:
        uint8_NE = quantise(vectors_NE, ranges_2E)
        tensors |= {output_name("uint8"): uint8_NE, output_name("int8"): (uint8_NE ^ 128).view(np.int8)}
    return tensors | {EMBEDDING: vectors_NE}


def quantise(vectors_NE: NDArray[np.float32], ranges_2E: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return values from 0 to 255 (N, E), as `sentence_transformers.quantize_embeddings` computes them."""
    starts_E = ranges_2E[0]
    steps_E = (ranges_2E[1] - starts_E) / _STEPS
    steps_E = np.where(steps_E == 0, 1, steps_E)
    return np.clip(np.floor((vectors_NE - starts_E) / steps_E), 0, _STEPS).astype(np.uint8)


def _encode_means(bundle: Bundle, request: TaskInput) -> EncodedRequest:
    def decode(outputs: Sequence[RowOutputs]) -> ResponseTensors:
        means_ND = np.stack([output[HIDDEN].mean(0) for output in outputs])
        if request.parameters[_NORMALIZE]:
            means_ND /= np.linalg.norm(means_ND, axis=1, keepdims=True)
        return _tensors(means_ND, bundle.ranges_2E)

    return EncodedRequest(encode_rows(bundle, request), decode)


def _encode_retrieval(bundle: Bundle, request: TaskInput) -> EncodedRequest:
    assert bundle.retrieval is not None  # its kind has them
    passage = bundle.retrieval.passage_prefix
    prefixes = {"query": bundle.retrieval.query_prefix, "passage": passage, "document": passage}
    prefixes |= {_DEFAULT_PREFIX: bundle.retrieval.default_prefix, NO_PREFIX: ""}
    prefix = prefixes[request.parameters[INPUT_TYPE]]
    prefixed = request._replace(texts={TEXT: [prefix + text for text in request.texts[TEXT]]})

    def decode(outputs: Sequence[RowOutputs]) -> ResponseTensors:
        return _tensors(np.stack([output[VECTORS] for output in outputs]), bundle.ranges_2E)

    return EncodedRequest(encode_rows(bundle, prefixed), decode)


TEXT_EMBEDDING = TaskHandler(
    (TEXT,),
    _outputs,
    _encode_means,
    {
        TRUNCATE: TRUNCATE_PARAMETER,
        _NORMALIZE: RequestParameter(True, "divide each embedding by its length, so that products are cosines"),
    },
)
RETRIEVAL = TaskHandler(
    INPUTS["retrieval"],
    _outputs,
    _encode_retrieval,
    {
        TRUNCATE: TRUNCATE_PARAMETER,
        INPUT_TYPE: RequestParameter(
            _DEFAULT_PREFIX,
            "whether the task's default prompt, if it has one, its prefix of queries, that of passages (or documents), "
            "or none stands before each text",
            choices=(_DEFAULT_PREFIX, NO_PREFIX, "query", "passage", "document"),
        ),
    },
)

"""Answers with one value for each text: classes of texts or of pairs, and vectors.

Vectors are those of a retrieval task, or means of a primary's last layer over a text's tokens.

Legend: N texts, C classes, D width of the body.
"""

from collections.abc import Sequence

import numpy as np

from lingraft.bundle.format import HIDDEN, VECTORS, OutputSizes
from lingraft.config.tasks import INPUTS
from lingraft.serving.bundle import Bundle
from lingraft.serving.handlers.handler import (
    TEXT,
    TRUNCATES,
    EncodedRequest,
    RequestParameter,
    ResponseTensors,
    RowOutputs,
    TaskHandler,
    TaskInput,
    TensorSpec,
    encode_rows,
    one_each,
    softmax,
)

EMBEDDING = "embedding"
INPUT_TYPE = "input_type"
NO_PREFIX = "none"
_DEFAULT_PREFIX = "default"
_NORMALIZE = "normalize"


def _classes(sizes: OutputSizes) -> list[TensorSpec]:
    return [*one_each(label="BYTES", probability="FP32"), TensorSpec("probabilities", "FP32", [-1, sizes.labels])]


def _encode_texts(bundle: Bundle, request: TaskInput) -> EncodedRequest:
    def decode(outputs: Sequence[RowOutputs]) -> ResponseTensors:
        probabilities_NC = softmax(np.stack([output["logits_BC"] for output in outputs]))
        return {
            "label": np.array([bundle.labels[best] for best in probabilities_NC.argmax(1)], np.object_),
            "probability": probabilities_NC.max(1),
            "probabilities": probabilities_NC,
        }

    return EncodedRequest(encode_rows(bundle, request), decode)


def _vectors(sizes: OutputSizes) -> list[TensorSpec]:
    return [TensorSpec(EMBEDDING, "FP32", [-1, sizes.width])]


def _encode_means(bundle: Bundle, request: TaskInput) -> EncodedRequest:
    def decode(outputs: Sequence[RowOutputs]) -> ResponseTensors:
        means_ND = np.stack([output[HIDDEN].mean(0) for output in outputs])
        if request.parameters[_NORMALIZE]:
            means_ND /= np.linalg.norm(means_ND, axis=1, keepdims=True)
        return {EMBEDDING: means_ND}

    return EncodedRequest(encode_rows(bundle, request), decode)


def _encode_retrieval(bundle: Bundle, request: TaskInput) -> EncodedRequest:
    assert bundle.retrieval is not None  # its kind has them
    passage = bundle.retrieval.passage_prefix
    prefixes = {"query": bundle.retrieval.query_prefix, "passage": passage, "document": passage}
    prefixes |= {_DEFAULT_PREFIX: bundle.retrieval.default_prefix, NO_PREFIX: ""}
    prefix = prefixes[request.parameters[INPUT_TYPE]]
    prefixed = request._replace(texts={TEXT: [prefix + text for text in request.texts[TEXT]]})

    def decode(outputs: Sequence[RowOutputs]) -> ResponseTensors:
        return {EMBEDDING: np.stack([output[VECTORS] for output in outputs])}

    return EncodedRequest(encode_rows(bundle, prefixed), decode)


TEXT_CLASSIFICATION = TaskHandler(INPUTS["texts"], _classes, _encode_texts, TRUNCATES)
PAIR_CLASSIFICATION = TaskHandler(INPUTS["pairs"], _classes, _encode_texts, TRUNCATES)
_NORMALIZES = RequestParameter(True, "divide each embedding by its length, so that products are cosines")
TEXT_EMBEDDING = TaskHandler((TEXT,), _vectors, _encode_means, TRUNCATES | {_NORMALIZE: _NORMALIZES})
_PREFIXES = RequestParameter(
    _DEFAULT_PREFIX,
    "whether the task's default prompt, if it has one, its prefix of queries, that of passages (or documents), or none "
    "stands before each text",
    choices=(_DEFAULT_PREFIX, NO_PREFIX, "query", "passage", "document"),
)
RETRIEVAL = TaskHandler(INPUTS["retrieval"], _vectors, _encode_retrieval, TRUNCATES | {INPUT_TYPE: _PREFIXES})

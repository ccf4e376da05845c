"""Classification of texts or pairs of texts.

Legend: N texts, C classes.
"""

from collections.abc import Sequence

import numpy as np

from lingraft.bundle.format import OutputSizes
from lingraft.config.tasks import INPUTS
from lingraft.serving.bundle import Bundle
from lingraft.serving.handlers.handler import (
    TRUNCATE,
    TRUNCATE_PARAMETER,
    EncodedRequest,
    ResponseTensors,
    RowOutputs,
    TaskHandler,
    TaskInput,
    TensorSpec,
    encode_rows,
    softmax,
    text_tensor,
)

LABEL = "label"
PROBABILITY = "probability"


def _outputs(sizes: OutputSizes) -> list[TensorSpec]:
    return [
        TensorSpec(LABEL, "BYTES", [-1], "most probable label of each text"),
        TensorSpec(PROBABILITY, "FP32", [-1], "its probability"),
        TensorSpec("probabilities", "FP32", [-1, sizes.labels], "of all labels, in the order of the metadata"),
    ]


def _encode(bundle: Bundle, request: TaskInput) -> EncodedRequest:
    def decode(outputs: Sequence[RowOutputs]) -> ResponseTensors:
        probabilities_NC = softmax(np.stack([output["logits_BC"] for output in outputs]))
        return {
            LABEL: text_tensor([bundle.labels[best] for best in probabilities_NC.argmax(1)]),
            PROBABILITY: probabilities_NC.max(1),
            "probabilities": probabilities_NC,
        }

    return EncodedRequest(encode_rows(bundle, request), decode)


TEXT_CLASSIFICATION = TaskHandler(INPUTS["texts"], _outputs, _encode, {TRUNCATE: TRUNCATE_PARAMETER})
PAIR_CLASSIFICATION = TaskHandler(INPUTS["pairs"], _outputs, _encode, {TRUNCATE: TRUNCATE_PARAMETER})

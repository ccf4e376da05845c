"""A bundle as a kserve Model: request in, response out."""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np

from lingraft.errors import MissingExtraError
from lingraft.serving.bundle import Bundle
from lingraft.serving.questions import (
    LABEL,
    LANGUAGE,
    MAX_BODY_BYTES,
    MAX_CHARACTERS,
    MAX_TEXTS,
    PROBABILITIES,
    PROBABILITY,
    TEXT,
    TRUNCATE,
    read,
)

try:
    from kserve import InferOutput, InferRequest, InferResponse, Model
except ImportError as error:
    raise MissingExtraError("kserve", "serving") from error


class TaskModel(Model):  # type: ignore[misc]  # kserve has no types
    """One task in all the languages of a bundle."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle.name)
        self._bundle = bundle
        self.ready = True

    def metadata(self) -> dict[str, Any]:
        """The protocol's model metadata; `parameters` says which languages, labels and limits there are."""
        bundle = self._bundle
        return {
            "name": self.name,
            "versions": [],
            "platform": "onnxruntime",
            "inputs": self.get_input_types(),
            "outputs": self.get_output_types(),
            "parameters": {
                "languages": sorted(bundle.languages),
                "labels": bundle.labels,
                "fingerprint": bundle.fingerprint,
                "max_texts": MAX_TEXTS,
                "max_characters": MAX_CHARACTERS,
                "max_tokens": bundle.block_tokens,
                "max_body_bytes": MAX_BODY_BYTES,
                "request_parameters": {TRUNCATE: "BOOL: read only the first max_tokens tokens of a longer text"},
            },
        }

    def get_input_types(self) -> list[dict[str, Any]]:
        """What a request has."""
        return [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in (TEXT, LANGUAGE)]

    def get_output_types(self) -> list[dict[str, Any]]:
        """What a response has."""
        return [
            {"name": LABEL, "datatype": "BYTES", "shape": [-1]},
            {"name": PROBABILITY, "datatype": "FP32", "shape": [-1]},
            {"name": PROBABILITIES, "datatype": "FP32", "shape": [-1, len(self._bundle.labels)]},
        ]

    async def predict(
        self,
        payload: InferRequest,
        headers: Mapping[str, str] | None = None,
        response_headers: Mapping[str, str] | None = None,
    ) -> InferResponse:
        """Answer a request, beside the event loop, so that health checks are answered meanwhile.

        Raises:
            RequestError: the request is not one that the bundle can answer.
        """
        asked = read(payload)
        probabilities_NC = await asyncio.to_thread(self._bundle.probabilities, asked.questions, asked.truncate)
        best_N = probabilities_NC.argmax(1)
        labels = [self._bundle.labels[best] for best in best_N]
        values = {
            LABEL: np.array(labels, dtype=np.object_),
            PROBABILITY: probabilities_NC[np.arange(len(best_N)), best_N],
            PROBABILITIES: probabilities_NC,
        }
        outputs = [
            InferOutput(kind["name"], list(values[kind["name"]].shape), kind["datatype"], values[kind["name"]])
            for kind in self.get_output_types()
        ]
        return InferResponse(
            payload.id or str(uuid.uuid4()), self.name, outputs, requested_outputs=payload.request_outputs
        )

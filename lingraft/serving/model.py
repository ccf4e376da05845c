"""Models as KServe serves them: one for each task, and `fill-mask` and `embeddings` for a primary."""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model
from numpy.typing import NDArray

from lingraft.bundle.runtime import CUDA, default_provider
from lingraft.data.language_detection import DetectedLanguage, LanguageDetector
from lingraft.errors import RequestError
from lingraft.ranks import available_cores
from lingraft.serving import metrics
from lingraft.serving.batching import BatchQueue, QueueLimits
from lingraft.serving.handlers.handler import EncodedRequest, TaskInput, TensorSpec, run_batch
from lingraft.serving.languages import mismatch_warning, resolve_languages, unknown_shares
from lingraft.serving.requests import ParsedRequest, parse_request
from lingraft.serving.served_models import ServedModel
from lingraft.serving.settings import ServingSettings

_TOKENIZER_THREADS = 4
_TOKENS_PER_CORE = 512
_GPU_TOKENS = 16_384
_MIN_FILL, _GPU_MIN_FILL = 0.9, 0.75


class ModelAnswer(NamedTuple):
    """ModelAnswer to a request."""

    outputs: list[tuple[TensorSpec, NDArray[Any]]]
    tokens: int
    """Number of tokens that the model read, special ones included."""
    parameters: dict[str, str]
    """Fingerprint of each language (`fingerprint.<tag>`), and a `warning` about texts of unknown characters."""


class ServingContext:
    """Queues, threads, detection of languages and settings, which the models of a server share."""

    def __init__(
        self, bundles: Iterable[str], settings: ServingSettings, detector: LanguageDetector | None = None
    ) -> None:
        """Create a queue for each bundle."""
        self.settings = settings
        self.detector = detector
        self._threads = ThreadPoolExecutor(_TOKENIZER_THREADS, "tokenizer")
        # One thread: a body uses all cores, so that two at once would compete for them.
        body, limits = ThreadPoolExecutor(1, "body"), queue_limits(settings)
        self.queues = {
            name: BatchQueue(run_batch, limits, body, partial(metrics.count_batch, name)) for name in bundles
        }
        for name, queue in self.queues.items():
            metrics.QUEUE.labels(name).set_function(queue.__len__)

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in a thread, so that the event loop goes on answering health checks."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


class EndpointModel(Model):  # type: ignore[misc]  # kserve has no types
    """A model of the protocol, with the bundle that is served at the moment; a change makes a new one."""

    def __init__(self, name: str, served: ServedModel, engine: ServingContext) -> None:
        super().__init__(name)
        self.served = served
        self.ready = True
        self._engine = engine

    def get_input_types(self) -> list[dict[str, Any]]:
        """Return the inputs, for the protocol's metadata."""
        return [{"name": each, "datatype": "BYTES", "shape": [-1]} for each in self.served.inputs]

    def get_output_types(self) -> list[dict[str, Any]]:
        """Return the outputs, for the protocol's metadata."""
        return [each._asdict() for each in self.served.outputs]

    async def predict(self, payload: Any, *_: Any) -> InferResponse:
        """ModelAnswer a request of the protocol, over REST or gRPC."""
        if not isinstance(payload, InferRequest):
            raise RequestError(f"send requests of version 2 of the protocol: POST /v2/models/{self.name}/infer.")
        answer = await self.answer(parse_request(payload, self.served, self._engine.settings))
        return InferResponse(
            response_id=payload.id or str(uuid.uuid4()),
            model_name=self.name,
            infer_outputs=[
                InferOutput(spec.name, list(values.shape), spec.datatype, values) for spec, values in answer.outputs
            ],
            parameters=answer.parameters,
            # Over gRPC all tensors are bytes anyway, and KServe would ask for the truth of an array.
            use_binary_outputs=payload.use_binary_outputs and not payload.from_grpc,
            requested_outputs=payload.request_outputs,
        )

    async def answer(self, request: ParsedRequest) -> ModelAnswer:
        """ModelAnswer a request."""
        began_s, engine, bundle = time.monotonic(), self._engine, self.served.bundle
        encoded, detected, unknown = await engine.in_thread(self._encode, request)
        outputs = await engine.queues[bundle.name].outputs(bundle, encoded.rows)
        languages = [each.language for each in detected]
        tensors = await engine.in_thread(encoded.decode, outputs) | {
            "language": np.array(languages, np.object_),
            "language_confidence": np.array([each.confidence for each in detected], np.float32),
            "unknown_share": np.array(unknown, np.float32),
        }
        limit = engine.settings.unknown_limit
        doubtful = [language for language, share in zip(languages, unknown, strict=True) if share > limit]
        metrics.count_answered(self.name, languages, doubtful, time.monotonic() - began_s)
        parameters = {f"fingerprint.{tag}": bundle.languages[tag].fingerprint for tag in sorted({*languages})}
        if warning := mismatch_warning(unknown, languages, limit):
            parameters["warning"] = warning
        return ModelAnswer(
            outputs=[(each, tensors[each.name]) for each in self.served.outputs if each.name in request.outputs],
            tokens=sum(map(len, encoded.rows)),
            parameters=parameters,
        )

    def _encode(self, request: ParsedRequest) -> tuple[EncodedRequest, list[DetectedLanguage], list[float]]:
        bundle, handler = self.served.bundle, self.served.handler
        texts = request.texts[handler.detection_input]
        detected = resolve_languages(request.languages, texts, bundle.languages, self._engine.detector)
        task_input = TaskInput(request.texts, [each.language for each in detected], request.parameters)
        encoded = handler.encode(bundle, task_input)
        return encoded, detected, unknown_shares(task_input, encoded.rows, bundle)


def queue_limits(settings: ServingSettings) -> QueueLimits:
    """Return the limits of a queue: a CPU needs some hundred tokens a core to be at full speed, a GPU thousands."""
    on_gpu = default_provider() == CUDA
    return QueueLimits(
        batch_texts=settings.batch_texts,
        batch_tokens=settings.batch_tokens or (_GPU_TOKENS if on_gpu else _TOKENS_PER_CORE * available_cores()),
        wait_s=settings.wait_ms / 1000,
        waiting_texts=settings.waiting_texts,
        min_fill=_GPU_MIN_FILL if on_gpu else _MIN_FILL,
    )

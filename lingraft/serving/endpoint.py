"""The endpoint without a transport, from request to output tensors; REST and gRPC share it."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lingraft.bundle.runtime import CUDA, default_provider
from lingraft.data.language_detection import DetectedLanguage, LanguageDetector
from lingraft.errors import OverloadedError, RequestError, StoppingError, UnknownModelError
from lingraft.ranks import available_cores
from lingraft.serving import metrics
from lingraft.serving.bundle import Bundle
from lingraft.serving.handlers.handler import (
    LANGUAGE,
    EncodedRequest,
    ResponseTensors,
    RowOutputs,
    TaskInput,
    TensorSpec,
    TokenRow,
    run_batch,
    text_tensor,
)
from lingraft.serving.languages import mismatch_warning, resolve_languages, unknown_shares
from lingraft.serving.queue import MIN_FILL, BatchQueue, QueueLimits
from lingraft.serving.requests import InferRequest, ParsedRequest, validate_request
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.served_models import (
    DETECTED_LANGUAGE,
    LANGUAGE_CONFIDENCE,
    UNKNOWN_SHARE,
    ServedModel,
    metadata,
    served_models,
)
from lingraft.serving.settings import ServingSettings

WARNING = "warning"
"""Name of the response's parameter."""
_RETRY_S = 1
_POLL_S = 0.02
_TOKENIZER_THREADS = 4
_TOKENS_PER_CORE = 512
_GPU_TOKENS = 16_384
_CPU_MIN_FILL = 0.9


class InferResponse(NamedTuple):
    """Response to an inference request."""

    id: str
    model: str
    outputs: list[tuple[TensorSpec, NDArray[Any]]]
    languages: list[str]
    tokens: int
    """Number of tokens that the model read, special ones included."""
    parameters: dict[str, str]
    """Fingerprint of each language (`fingerprint.<tag>`), and the warning about unknown characters if there is one."""


class _PreparedRequest(NamedTuple):
    encoded: EncodedRequest
    detected: list[DetectedLanguage]
    """Language in which each text is read, whether it was named or detected."""
    unknown: list[float]
    """Share of each text's characters that its tokenizer does not know."""
    others: list[str]
    """Detected language of each text if it differs from the one it was sent in; else empty."""

    @property
    def languages(self) -> list[str]:
        return [each.language for each in self.detected]

    def tensors(self) -> ResponseTensors:
        return {
            LANGUAGE: text_tensor(self.languages),
            LANGUAGE_CONFIDENCE: np.array([each.confidence for each in self.detected], np.float32),
            UNKNOWN_SHARE: np.array(self.unknown, np.float32),
            DETECTED_LANGUAGE: text_tensor(self.others),
        }


class Endpoint:
    """All models of a server; an endpoint belongs to one event loop."""

    def __init__(
        self, served: ServedBundles, settings: ServingSettings, detector: LanguageDetector | None = None
    ) -> None:
        """Prepare the models; requests are refused until `start`.

        Raises:
            ServingError: two models have the same name.
        """
        self.served = served
        self.settings = settings
        served_models(served.bundles)  # refuses two of the same name now, not at the first request
        self._detector = detector
        # One thread: a body uses all cores, so that two at once would compete for them.
        self._body_thread = ThreadPoolExecutor(1, "body")
        self._tokenizer_threads = ThreadPoolExecutor(_TOKENIZER_THREADS, "tokenizer")
        self._queues: dict[str, BatchQueue[TokenRow, Bundle, RowOutputs]] = {}
        self._work: list[asyncio.Task[None]] = []
        self._requests = 0
        self._stopping = False

    def start(self) -> None:
        """Start the queues in the running event loop."""
        limits = queue_limits(self.settings)
        for name in self.served.bundles:
            queue = BatchQueue(run_batch, limits, self._body_thread, metrics.batch_observer(name))
            metrics.track_queue_length(name, queue.__len__)
            self._queues[name] = queue
            self._work.append(asyncio.create_task(queue.work()))

    @property
    def models(self) -> dict[str, ServedModel]:
        """Models that are loaded at the moment, by name."""
        return served_models(self.served.bundles)

    @property
    def ready(self) -> bool:
        """Whether requests are accepted."""
        return bool(self._work) and not self._stopping

    async def wait_for_queues(self) -> None:
        """Wait until the queues have been stopped by `drain`."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._work)

    async def drain(self) -> None:
        """Refuse new requests, and wait for accepted ones, up to the time limit of the settings."""
        self._stopping = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain_s):
                while self._requests:
                    await asyncio.sleep(_POLL_S)
        for task in self._work:
            task.cancel()

    @contextlib.contextmanager
    def admit(self) -> Iterator[None]:
        """Count a request from before it is read until it is answered.

        Raises:
            StoppingError: the server is stopping.
            OverloadedError: the limit of concurrent requests is reached.
        """
        if not self.ready:
            raise StoppingError(
                "this server is about to end, and takes on nothing new. Ask again: another one answers."
            )
        if self._requests >= self.settings.requests:
            raise OverloadedError(
                f"{self._requests} requests are being answered, and no more may be. Ask again later.", _RETRY_S
            )
        self._requests += 1
        metrics.REQUESTS.set(self._requests)
        try:
            yield
        finally:
            self._requests -= 1
            metrics.REQUESTS.set(self._requests)

    def metadata(self, name: str) -> dict[str, Any]:
        """Return the protocol's metadata of a model at the moment.

        Raises:
            UnknownModelError: the model is not loaded.
        """
        return metadata(name, self._model(name), self.settings)

    async def answer(self, name: str, request: InferRequest) -> InferResponse:
        """Answer an inference request to a model.

        Raises:
            UnknownModelError: the model is not loaded.
            RequestError: the request is invalid for the model.
            OverloadedError: too many texts are waiting.
        """
        began_s = time.monotonic()
        model = self._model(name)
        bundle = model.bundle
        specs = model.outputs
        parsed = validate_request(request, model.handler, [each.name for each in specs], self.settings)
        wanted = set(parsed.outputs) or {each.name for each in specs if each.by_default}
        detect_all = DETECTED_LANGUAGE in wanted
        prepared = await self._in_thread(self._prepare, name, model, parsed, detect_all)
        outputs = await self._queues[bundle.name].outputs(bundle, prepared.encoded.rows)
        tensors = await self._in_thread(prepared.encoded.decode, outputs) | prepared.tensors()
        metrics.count_answered(name, prepared.languages, time.monotonic() - began_s)
        parameters = {f"fingerprint.{tag}": bundle.languages[tag].fingerprint for tag in sorted({*prepared.languages})}
        if warning := self._warning(name, prepared, refused=False):
            parameters[WARNING] = warning
        return InferResponse(
            id=request.id or str(uuid.uuid4()),
            model=name,
            outputs=[(each, tensors[each.name]) for each in specs if each.name in wanted],
            languages=prepared.languages,
            tokens=sum(map(len, prepared.encoded.rows)),
            parameters=parameters,
        )

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        """Run a function in a thread, so that the event loop goes on answering health checks."""
        return await asyncio.get_running_loop().run_in_executor(self._tokenizer_threads, function, *arguments)

    def _model(self, name: str) -> ServedModel:
        models = self.models
        if name not in models:
            raise UnknownModelError(f"{name!r} is not loaded; {sorted(models)} are.")
        return models[name]

    def _prepare(self, name: str, model: ServedModel, parsed: ParsedRequest, detect_all: bool) -> _PreparedRequest:
        """Resolve the languages of a request, encode it, and look for texts that are in another language."""
        bundle, handler = model.bundle, model.handler
        texts = parsed.texts[handler.detection_input]
        detected = resolve_languages(parsed.languages, texts, bundle.languages, self._detector)
        task_input = TaskInput(parsed.texts, [each.language for each in detected], parsed.parameters)
        encoded = handler.encode(bundle, task_input)
        if len(encoded.rows) > self.settings.waiting_texts:
            raise RequestError(
                f"the request makes {len(encoded.rows)} texts for the model, and at most "
                f"{self.settings.waiting_texts} may wait at all. Send less at once."
            )
        unknown = unknown_shares(task_input, encoded.rows, bundle)
        others = [
            self._other_language(language, text, unsure=share > self.settings.unknown_limit, detect_all=detect_all)
            for language, text, share in zip(parsed.languages, texts, unknown, strict=True)
        ]
        prepared = _PreparedRequest(encoded, detected, unknown, others)
        if self.settings.refuse_unknown and (warning := self._warning(name, prepared, refused=True)):
            raise RequestError(f"{warning}. Send each text with its own language.")
        return prepared

    def _other_language(self, language: str, text: str, *, unsure: bool, detect_all: bool) -> str:
        if self._detector is None or not (unsure or detect_all):
            return ""
        return self._detector.detect_other(language, text, unsure=unsure)

    def _warning(self, name: str, prepared: _PreparedRequest, *, refused: bool) -> str:
        """Count the texts above the limit of unknown characters, and return a warning about them."""
        limit = self.settings.unknown_limit
        for language, share in zip(prepared.languages, prepared.unknown, strict=True):
            if share > limit:
                metrics.count_unknown(name, language, refused=refused)
        return mismatch_warning(prepared.unknown, prepared.languages, prepared.others, limit)


def queue_limits(settings: ServingSettings) -> QueueLimits:
    """Return the limits of a queue for the installed ONNX Runtime.

    A CPU reaches its full speed with a few hundred tokens per core (`benchmarks.serving`): more tokens only add padding
    and waiting time. A GPU needs many thousands, which is worth more padding.
    """
    on_gpu = default_provider() == CUDA
    return QueueLimits(
        batch_texts=settings.batch_texts,
        batch_tokens=settings.batch_tokens or (_GPU_TOKENS if on_gpu else _TOKENS_PER_CORE * available_cores()),
        wait_s=settings.wait_ms / 1000,
        waiting_texts=settings.waiting_texts,
        min_fill=MIN_FILL if on_gpu else _CPU_MIN_FILL,
    )

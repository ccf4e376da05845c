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

from lingraft.bundle.runtime import CUDA, default_provider, usable_cpus
from lingraft.data.language_detection import DetectedLanguage, LanguageDetector
from lingraft.errors import OverloadedError, RequestError, StoppingError
from lingraft.serving import metrics
from lingraft.serving.bundle import Bundle
from lingraft.serving.detection import resolve_languages
from lingraft.serving.mismatch import (
    DETECTED_LANGUAGE,
    UNKNOWN_SHARE,
    WARNING,
    detect_other_languages,
    mismatch_warning,
    require_known,
    unknown_shares,
)
from lingraft.serving.models import LANGUAGE_CONFIDENCE, metadata, served_models
from lingraft.serving.queue import MIN_FILL, BatchQueue, QueueLimits
from lingraft.serving.requests import InferRequest, ParsedRequest, validate_request
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.settings import ServingSettings
from lingraft.serving.tasks.handler import (
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

_RETRY_S = 1
_POLL_S = 0.02
_READING_THREADS = 4
_TOKENS_PER_CORE = 512
_GPU_TOKENS = 16_384
_CPU_LEAST_FULL = 0.9


class InferResponse(NamedTuple):
    """Response to an inference request."""

    id: str
    model: str
    outputs: list[tuple[TensorSpec, NDArray[Any]]]
    languages: list[str]
    """Languages of the texts, for the log."""
    warning: str
    """Warning about texts that do not look like their language; empty if all do."""
    fingerprints: dict[str, str]
    """Fingerprints by language, which cover everything that the outputs depend on."""

    @property
    def parameters(self) -> dict[str, str]:
        """Parameters of the response; the protocol allows only plain values."""
        fingerprints = {f"fingerprint.{language}": value for language, value in self.fingerprints.items()}
        return fingerprints | ({WARNING: self.warning} if self.warning else {})


class _PreparedRequest(NamedTuple):
    """A request whose texts are encoded, and whose languages are known."""

    encoded: EncodedRequest
    spoken: list[DetectedLanguage]
    unknown: list[float]
    """Share of each text's characters that its tokenizer does not know."""
    others: list[str]
    """Detected language of each text if it differs from the one it was sent in; else empty."""

    @property
    def languages(self) -> list[str]:
        return [each.language for each in self.spoken]


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
        self.models = served_models(served.bundles)
        self._detector = detector
        # One thread: a body uses all cores, so that two at once would compete for them.
        self._body_thread = ThreadPoolExecutor(1, "body")
        self._reading = ThreadPoolExecutor(_READING_THREADS, "reading")
        self._queues: dict[str, BatchQueue[TokenRow, Bundle, RowOutputs]] = {}
        self._work: list[asyncio.Task[None]] = []
        self._requests = 0
        self._stopping = False

    def start(self) -> None:
        """Start the queues in the running event loop."""
        bounds = queue_limits(self.settings)
        for name in self.served.bundles:
            queue = BatchQueue(run_batch, bounds, self._body_thread, metrics.batch_observer(name))
            metrics.track_queue_length(name, queue.__len__)
            self._queues[name] = queue
            self._work.append(asyncio.create_task(queue.work()))

    @property
    def ready(self) -> bool:
        """Whether requests are accepted."""
        return bool(self._work) and not self._stopping

    async def wait_for_queues(self) -> None:
        """Wait until the queues have been stopped by `drain`.

        Raises:
            Exception: a queue failed; its requests would wait forever.
        """
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
        """Return the protocol's metadata of a model at the moment."""
        model = self.models[name]
        return metadata(name, model, self.served[model.bundle], self.settings)

    async def answer(self, name: str, request: InferRequest) -> InferResponse:
        """Answer an inference request.

        Raises:
            RequestError: the request is invalid for the model.
            OverloadedError: too many texts are waiting.
        """
        began_s = time.monotonic()
        model = self.models[name]
        bundle = self.served[model.bundle]
        tensors = model.outputs(bundle)
        asked = validate_request(
            request, model.handler.inputs, model.handler.parameters, [each.name for each in tensors], self.settings
        )
        wanted = set(asked.outputs) or {each.name for each in tensors}
        prepared = await self._in_thread(self._prepare, name, bundle, asked, DETECTED_LANGUAGE in wanted)
        outputs = await self._queues[model.bundle].outputs(bundle, prepared.encoded.rows)
        answers = await self._in_thread(prepared.encoded.decode, outputs) | _language_tensors(prepared)
        selected = [(each, answers[each.name]) for each in tensors if each.name in wanted]
        metrics.count_answered(name, prepared.languages, time.monotonic() - began_s)
        self._count_unknown(name, prepared, refused=False)
        message = mismatch_warning(prepared.unknown, prepared.languages, prepared.others, self.settings.unknown_limit)
        fingerprints = {tag: bundle.languages[tag].fingerprint for tag in sorted({*prepared.languages})}
        return InferResponse(
            id=request.id or str(uuid.uuid4()),
            model=name,
            outputs=selected,
            languages=prepared.languages,
            warning=message,
            fingerprints=fingerprints,
        )

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        """Run a function in a thread, so that the event loop goes on answering health checks."""
        return await asyncio.get_running_loop().run_in_executor(self._reading, function, *arguments)

    def _prepare(self, name: str, bundle: Bundle, asked: ParsedRequest, detects: bool) -> _PreparedRequest:
        model = self.models[name]
        limit = self.settings.unknown_limit
        texts = asked.texts[model.handler.detection_input]
        spoken = resolve_languages(asked.languages, texts, bundle.languages, self._detector)
        named = TaskInput(asked.texts, [each.language for each in spoken], asked.parameters)
        encoded = model.handler.encode(bundle, named)
        if len(encoded.rows) > self.settings.waiting_texts:
            raise RequestError(
                f"the request makes {len(encoded.rows)} texts for the model, and at most "
                f"{self.settings.waiting_texts} may wait at all. Send less at once."
            )
        unknown = unknown_shares(named, encoded.rows, bundle)
        unsure = [share > limit for share in unknown]
        others = detect_other_languages(texts, asked.languages, unsure, self._detector, every=detects)
        prepared = _PreparedRequest(encoded, spoken, unknown, others)
        if self.settings.refuse_unknown:
            self._count_unknown(name, prepared, refused=True)
            require_known(unknown, prepared.languages, others, limit)
        return prepared

    def _count_unknown(self, name: str, prepared: _PreparedRequest, *, refused: bool) -> None:
        for language, share in zip(prepared.languages, prepared.unknown, strict=True):
            if share > self.settings.unknown_limit:
                metrics.count_unknown(name, language, refused=refused)


def queue_limits(settings: ServingSettings) -> QueueLimits:
    """Return the limits of a queue for the installed ONNX Runtime.

    A CPU reaches its full speed with a few hundred tokens per core (`benchmarks.serving`): more tokens only add padding
    and waiting time. A GPU needs many thousands, which is worth more padding.
    """
    on_gpu = default_provider() == CUDA
    tokens = _GPU_TOKENS if on_gpu else _TOKENS_PER_CORE * usable_cpus()
    full = MIN_FILL if on_gpu else _CPU_LEAST_FULL
    return QueueLimits(
        batch_texts=settings.batch_texts,
        batch_tokens=settings.batch_tokens or tokens,
        wait_s=settings.wait_ms / 1000,
        waiting_texts=settings.waiting_texts,
        min_fill=full,
    )


def _language_tensors(prepared: _PreparedRequest) -> ResponseTensors:
    return {
        LANGUAGE: text_tensor([each.language for each in prepared.spoken]),
        LANGUAGE_CONFIDENCE: np.array([each.confidence for each in prepared.spoken], np.float32),
        UNKNOWN_SHARE: np.array(prepared.unknown, np.float32),
        DETECTED_LANGUAGE: text_tensor(prepared.others),
    }

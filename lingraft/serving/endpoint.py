"""The endpoint without a transport: a request in, tensors out; what REST and gRPC have in common."""

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
_TOKENS_A_CORE = 512
_GPU_TOKENS = 16_384
_CPU_LEAST_FULL = 0.9


class InferResponse(NamedTuple):
    """A response."""

    id: str
    model: str
    outputs: list[tuple[TensorSpec, NDArray[Any]]]
    languages: list[str]
    """Of its texts, for the log."""
    warning: str
    """Which texts do not look like their language; empty if all do."""
    fingerprints: dict[str, str]
    """By language, of all that decided these answers."""

    @property
    def parameters(self) -> dict[str, str]:
        """The response's parameters; the protocol allows plain values only."""
        fingerprints = {f"fingerprint.{language}": mark for language, mark in self.fingerprints.items()}
        return fingerprints | ({WARNING: self.warning} if self.warning else {})


class _PreparedRequest(NamedTuple):
    """A request that is ready for the body."""

    encoded: EncodedRequest
    spoken: list[DetectedLanguage]
    unknown: list[float]
    """Share of each text's characters that its tokenizer does not know."""
    others: list[str]
    """Language that each text seems to be in, where that is another one."""

    @property
    def languages(self) -> list[str]:
        return [each.language for each in self.spoken]


class Endpoint:
    """All models; made and used in one event loop."""

    def __init__(
        self, served: ServedBundles, settings: ServingSettings, detector: LanguageDetector | None = None
    ) -> None:
        """Make queues; nothing is answered before `start`.

        Raises:
            ServingError: two models have one name.
        """
        self.served = served
        self.settings = settings
        self.models = served_models(served.bundles)
        self._detector = detector
        # One thread: a body takes all cores, so that two at once would only take them from each other.
        self._body_thread = ThreadPoolExecutor(1, "body")
        self._reading = ThreadPoolExecutor(_READING_THREADS, "reading")
        self._queues: dict[str, BatchQueue[TokenRow, Bundle, RowOutputs]] = {}
        self._work: list[asyncio.Task[None]] = []
        self._requests = 0
        self._stopping = False

    def start(self) -> None:
        """Begin to answer, in the running event loop."""
        bounds = queue_limits(self.settings)
        for name in self.served.bundles:
            queue = BatchQueue(run_batch, bounds, self._body_thread, metrics.batch_observer(name))
            metrics.track_queue_length(name, queue.__len__)
            self._queues[name] = queue
            self._work.append(asyncio.create_task(queue.work()))

    @property
    def ready(self) -> bool:
        """Whether requests are taken on."""
        return bool(self._work) and not self._stopping

    async def wait_for_queues(self) -> None:
        """Wait until the queues' work has ended in good order.

        Raises:
            Exception: that of a queue which can go on no more; its requests would wait for ever.
        """
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._work)

    async def drain(self) -> None:
        """Take on nothing new, and wait for what was taken on, as long as the settings allow."""
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
            StoppingError: the server is about to end.
            OverloadedError: as many requests as there may be are being answered.
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
        """The protocol's metadata of a model, as it is now."""
        model = self.models[name]
        return metadata(name, model, self.served[model.bundle], self.settings)

    async def answer(self, name: str, request: InferRequest) -> InferResponse:
        """Answer a request.

        Raises:
            RequestError: it is not one that the model can answer.
            OverloadedError: too many texts wait already.
        """
        began_s = time.monotonic()
        model = self.models[name]
        bundle = self.served[model.bundle]
        tensors = model.outputs(bundle)
        asked = validate_request(
            request, model.handler.inputs, model.handler.parameters, [each.name for each in tensors], self.settings
        )
        wanted = set(asked.outputs) or {each.name for each in tensors}
        cut = await self._in_thread(self._prepare, name, bundle, asked, DETECTED_LANGUAGE in wanted)
        outputs = await self._queues[model.bundle].outputs(bundle, cut.encoded.rows)
        answers = await self._in_thread(cut.encoded.decode, outputs) | _language_tensors(cut)
        found = [(each, answers[each.name]) for each in tensors if each.name in wanted]
        metrics.count_answered(name, cut.languages, time.monotonic() - began_s)
        self._count_unknown(name, cut, refused=False)
        told = mismatch_warning(cut.unknown, cut.languages, cut.others, self.settings.unknown_limit)
        fingerprints = {tag: bundle.languages[tag].fingerprint for tag in sorted({*cut.languages})}
        return InferResponse(request.id or str(uuid.uuid4()), name, found, cut.languages, told, fingerprints)

    async def _in_thread(self, work: Any, *given: Any) -> Any:
        """Do something that takes longer beside the event loop, so that health checks are answered meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._reading, work, *given)

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
        cut = _PreparedRequest(encoded, spoken, unknown, others)
        if self.settings.refuse_unknown:
            self._count_unknown(name, cut, refused=True)
            require_known(unknown, cut.languages, others, limit)
        return cut

    def _count_unknown(self, name: str, cut: _PreparedRequest, *, refused: bool) -> None:
        for language, share in zip(cut.languages, cut.unknown, strict=True):
            if share > self.settings.unknown_limit:
                metrics.count_unknown(name, language, refused=refused)


def queue_limits(given: ServingSettings) -> QueueLimits:
    """Bounds of a queue before the ONNX Runtime that is installed.

    A CPU has its full speed with a few hundred tokens a core (`benchmarks.serving`): more of them only bring padding
    and wait longer. A GPU has it with many thousands, which is worth more padding.
    """
    on_gpu = default_provider() == CUDA
    tokens = _GPU_TOKENS if on_gpu else _TOKENS_A_CORE * usable_cpus()
    full = MIN_FILL if on_gpu else _CPU_LEAST_FULL
    return QueueLimits(given.batch_texts, given.batch_tokens or tokens, given.wait_ms / 1000, given.waiting_texts, full)


def _language_tensors(cut: _PreparedRequest) -> ResponseTensors:
    return {
        LANGUAGE: text_tensor([each.language for each in cut.spoken]),
        LANGUAGE_CONFIDENCE: np.array([each.confidence for each in cut.spoken], np.float32),
        UNKNOWN_SHARE: np.array(cut.unknown, np.float32),
        DETECTED_LANGUAGE: text_tensor(cut.others),
    }

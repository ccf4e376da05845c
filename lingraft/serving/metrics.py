"""Prometheus metrics of the endpoint, by task and language; they hold nothing of requests' texts."""

from collections.abc import Callable, Iterable

from prometheus_client import Counter, Gauge, Histogram

from lingraft.serving.queue import BatchStats

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128)

ANSWERS = Counter("lingraft_answers", "Answers of the endpoint, by path and status", ["path", "status"])
_LATENCY = Histogram(
    "lingraft_latency_seconds", "From the reading of a request to its answer", ["task", "language"], buckets=_SECONDS
)
_ANSWERED = Counter("lingraft_texts", "Texts answered", ["task", "language"])
_QUEUE = Gauge("lingraft_queue_texts", "Texts that wait for the body", ["task"])
_BATCH_TEXTS = Histogram("lingraft_batch_texts", "Texts that went through the body at once", ["task"], buckets=_TEXTS)
_BODY = Histogram("lingraft_body_seconds", "One batch in the body", ["task"], buckets=_SECONDS)
_TOKENS = Counter("lingraft_tokens", "Tokens that went through the body", ["task"])
_PADDING = Counter("lingraft_padding_tokens", "Padding that went through the body with them", ["task"])
_UNKNOWN = Counter(
    "lingraft_unknown_texts",
    "Texts with more unknown characters than --unknown-limit, warned of or refused",
    ["task", "language", "outcome"],
)
REQUESTS = Gauge("lingraft_requests", "Requests that are being answered")


def track_queue_length(task: str, length: Callable[[], int]) -> None:
    """Report a queue's length whenever the metrics are scraped."""
    _QUEUE.labels(task).set_function(length)


def batch_observer(task: str) -> Callable[[BatchStats], None]:
    """Return a function that records a batch of a queue."""
    texts = _BATCH_TEXTS.labels(task)
    seconds = _BODY.labels(task)
    tokens = _TOKENS.labels(task)
    padding = _PADDING.labels(task)

    def observe(batch: BatchStats) -> None:
        texts.observe(batch.texts)
        seconds.observe(batch.elapsed_s)
        tokens.inc(batch.tokens)
        padding.inc(batch.places - batch.tokens)

    return observe


def count_unknown(task: str, language: str, *, refused: bool) -> None:
    """Count a text with too large a share of unknown characters."""
    _UNKNOWN.labels(task, language, "refused" if refused else "warned").inc()


def count_answered(task: str, languages: Iterable[str], elapsed_s: float) -> None:
    """Record an answered request; its latency counts once for each of its languages."""
    by_text = list(languages)
    for language in dict.fromkeys(by_text):
        _LATENCY.labels(task, language).observe(elapsed_s)
        _ANSWERED.labels(task, language).inc(by_text.count(language))

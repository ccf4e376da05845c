"""Prometheus metrics of the endpoint beside KServe's, by task and language; they hold nothing of requests' texts."""

from collections import Counter as Counts
from collections.abc import Iterable, Sequence, Sized

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128)

ANSWERS = Counter("lingraft_answers", "Answers over REST, by path and status", ["path", "status"])
REQUESTS = Gauge("lingraft_requests", "Requests over REST that are being answered")
QUEUE = Gauge("lingraft_queue_texts", "Texts that wait for the body", ["task"])
_LATENCY = Histogram(
    "lingraft_latency_seconds", "From a parsed request to its answer", ["task", "language"], buckets=_SECONDS
)
_ANSWERED = Counter("lingraft_texts", "Texts answered", ["task", "language"])
_BATCH_TEXTS = Histogram("lingraft_batch_texts", "Texts that went through the body at once", ["task"], buckets=_TEXTS)
_BODY = Histogram("lingraft_body_seconds", "One batch in the body", ["task"], buckets=_SECONDS)
_TOKENS = Counter("lingraft_tokens", "Tokens that went through the body", ["task"])
_PADDING = Counter("lingraft_padding_tokens", "Padding that went through the body with them", ["task"])
_UNKNOWN = Counter(
    "lingraft_unknown_texts", "Texts with more unknown characters than --unknown-limit", ["task", "language"]
)


def count_batch(task: str, rows: Sequence[Sized], elapsed_s: float) -> None:
    """Record a batch that the body has computed."""
    lengths = [len(row) for row in rows]
    _BATCH_TEXTS.labels(task).observe(len(rows))
    _BODY.labels(task).observe(elapsed_s)
    _TOKENS.labels(task).inc(sum(lengths))
    _PADDING.labels(task).inc(len(rows) * max(lengths) - sum(lengths))


def count_answered(task: str, languages: Iterable[str], unknown: Iterable[str], elapsed_s: float) -> None:
    """Record an answered request by the languages of its texts, and of those that have too many unknown characters."""
    for language, count in Counts(languages).items():
        _LATENCY.labels(task, language).observe(elapsed_s)
        _ANSWERED.labels(task, language).inc(count)
    for language in unknown:
        _UNKNOWN.labels(task, language).inc()

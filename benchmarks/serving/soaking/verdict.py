"""Verdict on the soak: figures of the answers, and whether anything was wrong or grew."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.serving.soaking.answers import Answer, Timeline, fault
from benchmarks.serving.soaking.changes import Done
from benchmarks.serving.soaking.growth import Growth, Moment, growth
from benchmarks.serving.soaking.watch import Sample

BIN_S = 10.0
WARM_UP = 1 / 3
"""Share of the time that does not count for growth: until threads, allocator arenas and ONNX Runtime's own have met
their largest batches, and every language's pages have been read, memory goes up, and then stays."""
_SHOWN = 20
_UNBOUNDED = ("pss_bytes", "sockets")


@dataclass(frozen=True)
class Bounds:
    """Growth that is allowed after the warm-up."""

    memory_share: float = 0.01
    descriptors: float = 1.0
    threads: float = 1.0


def faults_of(answers: Iterable[Answer], timeline: Timeline) -> Counter[str]:
    """Count what was wrong."""
    return Counter(wrong for answer in answers if (wrong := fault(answer, timeline)))


def latencies(answers: Sequence[Answer], began_s: float) -> list[dict[str, float]]:
    """Answers, and milliseconds of the half and of 99 in 100, of each ten seconds."""
    places = np.array([int((answer.due_s - began_s) // BIN_S) for answer in answers])
    latency_ms = np.array([1000 * answer.latency_s for answer in answers])
    return [
        {
            "at_s": float(place * BIN_S),
            "answers": int((places == place).sum()),
            **percentiles(latency_ms[places == place]),
        }
        for place in sorted(set(places.tolist()))
    ]


def percentiles(latency_ms: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Return percentiles of latencies in milliseconds."""
    found = np.percentile(np.asarray(latency_ms), [50, 99, 100])
    return dict(zip(("p50_ms", "p99_ms", "most_ms"), (round(float(each), 2) for each in found), strict=True))


def moments(done: Sequence[Done], samples: Sequence[Sample], field: str, from_s: float) -> list[Moment]:
    """The median of what was measured between each change and the next one, after a time."""
    ends = [*(each.at_s for each in done[1:]), float("inf")][: len(done)]
    found = []
    for each, end_s in zip(done, ends, strict=True):
        since_s = each.at_s + each.elapsed_s
        values = [getattr(one, field) for one in samples if since_s <= one.at_s < end_s]
        if values and since_s >= from_s:
            found.append(Moment(each.name, since_s, float(median(values))))
    return found


def grown(done: Sequence[Done], samples: Sequence[Sample], from_s: float) -> dict[str, Growth]:
    """Return the growth of memory, descriptors and threads; nothing where the soak was too short to compare moments."""
    found = {field: growth(moments(done, samples, field, from_s)) for field in Sample._fields[1:]}
    return {field: each for field, each in found.items() if each}


def bound_of(name: str, found: Growth, bounds: Bounds) -> float | None:
    """How much more there may be of something.

    PSS has no bound: it goes up when another program, with which pages of libraries were shared, ends. What the server
    allocates or maps is in RSS as well. Nor have sockets, which are as many as requests are under way; they are judged
    by what is left of them in the end.
    """
    if name in _UNBOUNDED:
        return None
    return bounds.memory_share * found.level if name.endswith("_bytes") else float(getattr(bounds, name))


def problems(faults: Counter[str], found: Mapping[str, Growth], bounds: Bounds, sockets_left: int = 0) -> list[str]:
    """Why the soak has failed, in sentences; none if it has not."""
    said = [f"{sockets_left} sockets are left of clients that have gone"] if sockets_left > 0 else []
    if faults:
        [(often, _)] = faults.most_common(1)
        said.append(f"{sum(faults.values())} answers were wrong, mixed or refused, such as: {often}")
    for name, each in found.items():
        bound = bound_of(name, each, bounds)
        if bound is not None and each.grown > bound:
            said.append(f"{name} has grown by {each.grown:,.1f}, and {bound:,.1f} are allowed")
    return said


def shown_faults(faults: Counter[str]) -> dict[str, Any]:
    """Return how many faults there are, and the most frequent."""
    return {"count": sum(faults.values()), "what": dict(faults.most_common(_SHOWN))}

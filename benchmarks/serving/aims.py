"""Aims of serving (one body, every language), and what was reached."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.serving import latency, losses, overhead, pipelines, streams
from lingraft.bundle.format import TABLE_FORMATS


class Aim(NamedTuple):
    """One line of the page's first table."""

    what: str
    aim: str
    reached: str
    met: bool | None
    """None where it was not measured."""


Found = Mapping[str, Any]
"""Measurements by part; parts that were not run are absent."""


def aims(found: Found, bound_ms: float) -> list[Aim]:
    """All aims, in the order of the issue.

    Args:
        found: measurements of the parts that were run.
        bound_ms: how long 95% of answers may take where throughput is compared.
    """
    parts = {
        "memory": _memory,
        "latency": _latency,
        "streams": lambda one: _streams(one, bound_ms),
        "pipelines": _pipelines,
        "adding": _adding,
        "loading": _loading,
        "overhead": _overhead,
        "losses": _losses,
    }
    made = [aim for name, of in parts.items() if name in found for aim in of(found[name])]
    missing = [Aim(f"{name}: all", "", "not run", None) for name in parts if name not in found]
    return [*made, *missing, Aim("throughput on a GPU against separate sessions", "at least 3x", "not run", None)]


def _most(what: str, value: float, aim: float, unit: str = "x", digits: int = 2) -> Aim:
    return Aim(what, f"at most {aim:g}{unit}", f"{value:.{digits}f}{unit}", value <= aim)


def _least(what: str, value: float | None, aim: float) -> Aim:
    reached = "no load within the bound" if value is None else f"{value:.2f}x"
    return Aim(what, f"at least {aim:.3g}x", reached, None if value is None else value >= aim)


def _memory(one: dict[str, Any]) -> Iterator[Aim]:
    for tables, share in (("float32", 4), ("float16", 6)):
        times = one["separate_bytes"] / one["served"][tables]
        what = f"memory of separate sessions / ours, {tables} tables"
        yield _least(what, times, share)


def _latency(one: dict[str, Any]) -> Iterator[Aim]:
    ratios = [each["float32"] / each[latency.FIXED] for each in one["ms"].values()]
    yield _most("p50 at batch 1 / a fixed model's, worst length", max(ratios), 1.1)


def _streams(one: dict[str, Any], bound_ms: float) -> Iterator[Aim]:
    mixed, single, separate = (
        streams.best(one["loads"], side, bound_ms) for side in (streams.MIXED, streams.SINGLE, streams.SEPARATE)
    )
    within = f"95% within {bound_ms:g} ms"
    yield _least(f"texts/s, mixed languages / one language, {within}", _ratio(mixed, single), 1 / 1.1)
    yield _least(f"texts/s, mixed languages / separate sessions, CPU, {within}", _ratio(mixed, separate), 1.0)


def _ratio(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value / other


def _pipelines(one: dict[str, Any]) -> Iterator[Aim]:
    rates = one["texts_per_s"]
    sides = {"as it comes, a text at a time": one["tuned"]["1"], "in its best batches": rates[pipelines.PIPELINE]}
    for precision, aim in (("fp32", 1.5), ("int8", 2.5)):
        for how, rate in sides.items():
            yield _least(f"texts/s, {precision} / Hugging Face pipeline {how}", rates[precision] / rate, aim)


def _adding(one: dict[str, Any]) -> Iterator[Aim]:
    for tables in TABLE_FORMATS:
        each = one["memory"][tables]
        yield _most(f"memory added / the table, {tables}", each["added"] / each["table"], 1.1)


def _loading(one: dict[str, Any]) -> Iterator[Aim]:
    yield _most("loading a language, to the last task's right answer, slowest", max(one["seconds"]), 2.0, " s")


def _overhead(one: dict[str, Any]) -> Iterator[Aim]:
    for side, name in ((overhead.REST, "REST"), (overhead.GRPC, "gRPC")):
        worst = max(each for shape in ("served", "small") for each in overhead.overheads(one[shape], side))
        yield _most(f"server's p50 above the bare session's, {name}, worst shape and length", worst, 2.0, " ms")


def _losses(one: dict[str, Any]) -> Iterator[Aim]:
    for tables, precision in (
        ("float16", "fp32"),
        ("int8", "fp32"),
        ("float32", "fp16"),
        ("float32", "int8"),
        ("int8", "int8"),
    ):
        worst = losses.worst(one, tables, precision)
        yield _most(f"loss with {tables} tables and the body in {precision}, worst language", worst, 0.5, " points", 3)

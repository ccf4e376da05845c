"""The measurements: the peer's best settings, and both sides in turns."""

import statistics
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from benchmarks.speed.cells import Cell
from benchmarks.speed.machine import commit
from benchmarks.speed.peak import Product, peak
from benchmarks.speed.settings import Settings
from benchmarks.speed.side import Side, SideError, Timed

_ROUND_S = 2.0
"""A round is as many steps as take about so long, unless it is said otherwise."""
_LEAST_STEPS = 3
"""Fewest steps of a round: two batches were made while the other side trained, and say nothing of waiting."""
_WARMUP = 2
"""Steps after the first one: they still fetch memory from the system."""


def tuned(cell: Cell, tries: int = 2, alternatives: Iterable[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Try the peer's settings, and choose the fastest; each choice is tried against the best so far.

    Args:
        cell: cell that the peer trains.
        tries: rounds of which the fastest counts.
        alternatives: choices that differ from the defaults; `Settings.alternatives` if absent.
    """
    trials = [_trial(cell, Settings(), tries)]
    for changes in Settings.alternatives() if alternatives is None else alternatives:
        best = _fastest(trials)["settings"]
        trials.append(_trial(cell, replace(Settings(**best), **changes), tries))
    return {"trials": trials, "chosen": _fastest(trials)["settings"]}


def _fastest(trials: list[dict[str, Any]]) -> dict[str, Any]:
    return min((trial for trial in trials if trial["step_s"] is not None), key=lambda trial: trial["step_s"])


def _trial(cell: Cell, settings: Settings, tries: int) -> dict[str, Any]:
    """Seconds of a step, or the end of what went wrong: not every choice works on every machine."""
    try:
        with Side(cell, settings) as side:
            warmup = side.train(1)
            steps = _steps_of_a_round(side, 1)
            step_s = min(side.train(steps).step_s for _ in range(tries))
    except SideError as error:
        return {"settings": settings.plain(), "step_s": None, "warmup_s": None, "error": str(error)}
    return {"settings": settings.plain(), "step_s": step_s, "warmup_s": warmup.step_s, "error": None}


def compared(
    cell: Cell, settings: Settings, rounds: int, product: Product, round_s: float = _ROUND_S
) -> dict[str, Any]:
    """Both sides in turns, each in a process of its own.

    Args:
        cell: cell that lingraft trains; the peer trains what it can in its place, a plain loop the same.
        settings: the peer's.
        rounds: number of rounds of both.
        product: the matrix product whose rate, measured between rounds, is the machine's peak.
        round_s: a round is as many steps as take about so many seconds.
    """
    with Side(cell) as own, Side(cell if settings.plain_loop else cell.peer, settings) as peer:
        sides = (own, peer)
        firsts = [_warmed_up(side) for side in sides]
        steps = [_steps_of_a_round(side, _LEAST_STEPS, round_s) for side in sides]
        timed: tuple[list[Timed], list[Timed]] = ([], [])
        peaks = []
        for _ in range(rounds):
            peaks.append(peak(product, cell.format))
            for side, count, found in zip(sides, steps, timed, strict=True):
                found.append(side.train(count))
    ratios = [theirs.step_s / ours.step_s for ours, theirs in zip(*timed, strict=True)]
    return {
        "commit": commit(),
        "rounds": rounds,
        "steps_of_a_round": steps,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "cpu_ratio": statistics.median(theirs.cpu_s / ours.cpu_s for ours, theirs in zip(*timed, strict=True)),
        "peak_flop_s": statistics.median(peaks),
        "peaks_flop_s": peaks,
        "lingraft": {"first_step_s": firsts[0].step_s} | _summary(timed[0]),
        "trainer": {"first_step_s": firsts[1].step_s} | _summary(timed[1]),
    }


def _warmed_up(side: Side) -> Timed:
    """Its first step."""
    first = side.train(1)
    side.train(_WARMUP)
    return first


def _steps_of_a_round(side: Side, at_least: int, round_s: float = _ROUND_S) -> int:
    return max(at_least, round(round_s / side.train(1).step_s))


def _summary(rounds: list[Timed]) -> dict[str, Any]:
    waits = [each.waiting_s for each in rounds if each.waiting_s is not None]
    return {
        "step_s": statistics.median(each.step_s for each in rounds),
        "steps_s": [each.step_s for each in rounds],
        "cpu_s": statistics.median(each.cpu_s for each in rounds),
        "peak_bytes": rounds[-1].peak_bytes,
        "waiting_s": statistics.median(waits) if waits else None,
    }

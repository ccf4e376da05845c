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
"""A round is as many steps as take about so long."""
_LEAST_STEPS = 3
"""Fewest steps of a round: two batches were made while the other side trained, and say nothing of waiting."""
_WARMUP = 2
"""Steps after the first one: they still fetch memory from the system."""


def tuned(cell: Cell, tries: int = 2) -> dict[str, Any]:
    """Try the peer's settings, and choose the fastest; each choice is tried against the best so far.

    Args:
        cell: cell that the peer trains.
        tries: rounds of which the fastest counts.
    """
    trials = [_trial(cell, Settings(), tries)]
    for changes in Settings.alternatives():
        trials.append(_trial(cell, replace(Settings(**fastest(trials)), **changes), tries))
    return {"trials": trials, "chosen": fastest(trials)}


def fastest(trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the settings of the fastest trial among those that worked."""
    found: dict[str, Any] = min((one for one in trials if one["step_s"] is not None), key=lambda one: one["step_s"])
    return found["settings"]


def _trial(cell: Cell, settings: Settings, tries: int) -> dict[str, Any]:
    """Seconds of a step, or the end of what went wrong: not every choice works on every machine."""
    trial = {"settings": settings.plain(), "step_s": None, "warmup_s": None, "error": None}
    try:
        with Side(cell, settings) as side:
            first = side.train(1)
            steps = _steps_of_a_round(side, 1)
            step_s = min(side.train(steps).step_s for _ in range(tries))
    except SideError as error:
        return trial | {"error": str(error)}
    return trial | {"step_s": step_s, "warmup_s": first.step_s}


def compared(cell: Cell, settings: Settings, rounds: int, product: Product) -> dict[str, Any]:
    """Both sides in turns, each in a process of its own.

    Args:
        cell: cell that lingraft trains; the peer trains what it can in its place, a plain loop the same.
        settings: the peer's.
        rounds: number of rounds of both.
        product: the matrix product whose rate, measured between rounds, is the machine's peak.
    """
    with Side(cell) as own, Side(_peer(cell, settings), settings) as peer:
        sides = own, peer
        firsts = [_warmed_up(side) for side in sides]
        steps = [_steps_of_a_round(side, _LEAST_STEPS) for side in sides]
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


def _peer(cell: Cell, settings: Settings) -> Cell:
    return cell if settings.plain_loop else cell.peer


def _warmed_up(side: Side) -> Timed:
    first = side.train(1)
    side.train(_WARMUP)
    return first


def _steps_of_a_round(side: Side, at_least: int) -> int:
    return max(at_least, round(_ROUND_S / side.train(1).step_s))


def _summary(rounds: list[Timed]) -> dict[str, Any]:
    waits = [each.waiting_s for each in rounds if each.waiting_s is not None]
    return {
        "step_s": statistics.median(each.step_s for each in rounds),
        "steps_s": [each.step_s for each in rounds],
        "cpu_s": statistics.median(each.cpu_s for each in rounds),
        "peak_bytes": rounds[-1].peak_bytes,
        "waiting_s": statistics.median(waits) if waits else None,
    }

"""The measurements: the peer's best settings, and both sides in turns."""

import statistics
from dataclasses import replace
from typing import Any

from benchmarks.speed.cells import Cell
from benchmarks.speed.settings import Settings
from benchmarks.speed.side import Side, SideError, Timed

_ROUND_S = 2.0
"""A round is as many steps as take about so long, at least one."""


def tuned(cell: Cell, tries: int = 2) -> dict[str, Any]:
    """Try the peer's settings, and choose the fastest; each choice is tried against the best so far.

    Args:
        cell: what the peer trains.
        tries: rounds of which the fastest counts.
    """
    trials = [_trial(cell, Settings(), tries)]
    for changes in Settings.alternatives():
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
            steps = _steps_of_a_round(side)
            step_s = min(side.train(steps).step_s for _ in range(tries))
    except SideError as error:
        return {"settings": settings.plain(), "step_s": None, "warmup_s": None, "error": str(error)}
    return {"settings": settings.plain(), "step_s": step_s, "warmup_s": warmup.step_s, "error": None}


def compared(cell: Cell, settings: Settings, rounds: int) -> dict[str, Any]:
    """Both sides in turns, each in a process of its own.

    Args:
        cell: what lingraft trains; the peer trains what it can in its place.
        settings: the peer's.
        rounds: of both.
    """
    with Side(cell) as own, Side(cell.peer, settings) as peer:
        sides = (own, peer)
        for side in sides:
            side.train(1)
        steps = [_steps_of_a_round(side) for side in sides]
        timed: tuple[list[Timed], list[Timed]] = ([], [])
        for _ in range(rounds):
            for side, count, found in zip(sides, steps, timed, strict=True):
                found.append(side.train(count))
    ratios = [theirs.step_s / ours.step_s for ours, theirs in zip(*timed, strict=True)]
    return {
        "rounds": rounds,
        "steps_of_a_round": steps,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "cpu_ratio": statistics.median(theirs.cpu_s / ours.cpu_s for ours, theirs in zip(*timed, strict=True)),
        "lingraft": _summary(timed[0]),
        "trainer": _summary(timed[1]),
    }


def _steps_of_a_round(side: Side) -> int:
    return max(1, round(_ROUND_S / side.train(1).step_s))


def _summary(rounds: list[Timed]) -> dict[str, Any]:
    waits = [each.waiting_s for each in rounds if each.waiting_s is not None]
    return {
        "step_s": statistics.median(each.step_s for each in rounds),
        "steps_s": [each.step_s for each in rounds],
        "cpu_s": statistics.median(each.cpu_s for each in rounds),
        "peak_bytes": rounds[-1].peak_bytes,
        "waiting_s": statistics.median(waits) if waits else None,
    }

"""The measurements: the peer's best settings, and both sides in turns."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

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


def tried_together(cell: Cell, choices: Sequence[Settings], tries: int = 2) -> list[dict[str, Any]]:
    """Try some of the peer's settings, whose processes start at once."""
    with _warmed_up_together([(cell, choice) for choice in choices]) as warm:
        return [_timed(choice, warm[cell, choice].result, tries, at_least=_LEAST_STEPS) for choice in choices]


def fastest(trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the settings of the fastest trial among those that worked."""
    found: dict[str, Any] = min((one for one in trials if one["step_s"] is not None), key=lambda one: one["step_s"])
    return found["settings"]


def _trial(cell: Cell, settings: Settings, tries: int) -> dict[str, Any]:
    with Side(cell, settings) as side:
        return _timed(settings, lambda: _Warm(side, side.train(1)), tries, at_least=1)


def _timed(settings: Settings, begin: Callable[[], "_Warm"], tries: int, at_least: int) -> dict[str, Any]:
    """Seconds of a step, or the end of what went wrong: not every choice works on every machine."""
    trial = {"settings": settings.plain(), "step_s": None, "warmup_s": None, "error": None}
    try:
        side, first = begin()
        steps = _steps_of_a_round(side, at_least)
        step_s = min(side.train(steps).step_s for _ in range(tries))
    except SideError as error:
        return trial | {"error": str(error)}
    return trial | {"step_s": step_s, "warmup_s": first.step_s}


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
    with Side(cell) as own, Side(_peer(cell, settings), settings) as peer:
        return _in_turns(cell, _warmed_up(own), _warmed_up(peer), rounds, product, round_s=round_s)


def compared_together(
    cells: Sequence[Cell], settings: Settings, rounds: int, product: Product, round_s: float = _ROUND_S
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Yield the same of several cells, whose sides start, compile and warm up at once; they are timed one by one.

    It is for a machine with cores and memory for all of them. Of a cell whose side fails there is an `error` alone.
    """
    every = [side for cell in cells for side in ((cell, None), (_peer(cell, settings), settings))]
    with _warmed_up_together(every) as warm:
        for cell in cells:
            try:
                own, peer = warm[cell, None].result(), warm[_peer(cell, settings), settings].result()
                yield cell, _in_turns(cell, own, peer, rounds, product, round_s=round_s)
            except SideError as error:
                yield cell, {"error": str(error)}


class _Warm(NamedTuple):
    """A side that has taken its first steps."""

    side: Side
    first: Timed


@contextmanager
def _warmed_up_together(
    sides: Iterable[tuple[Cell, Settings | None]],
) -> Iterator[Mapping[tuple[Cell, Settings | None], Future[_Warm]]]:
    with ExitStack() as stack:
        started = {each: stack.enter_context(Side(*each)) for each in dict.fromkeys(sides)}
        with ThreadPoolExecutor(len(started)) as pool:
            warm = {each: pool.submit(_warmed_up, side) for each, side in started.items()}
        yield warm
        for side in started.values():  # they end together, not one after the other
            side.stop()


def _peer(cell: Cell, settings: Settings) -> Cell:
    return cell if settings.plain_loop else cell.peer


def _in_turns(cell: Cell, own: _Warm, peer: _Warm, rounds: int, product: Product, *, round_s: float) -> dict[str, Any]:
    sides = own.side, peer.side
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
        "lingraft": {"first_step_s": own.first.step_s} | _summary(timed[0]),
        "trainer": {"first_step_s": peer.first.step_s} | _summary(timed[1]),
    }


def _warmed_up(side: Side) -> _Warm:
    first = side.train(1)
    side.train(_WARMUP)
    return _Warm(side, first)


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

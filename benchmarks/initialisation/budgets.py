"""Scores that systems have at equal cost, and costs of a score that all of them reach."""

from collections.abc import Iterator, Sequence
from math import nan
from typing import NamedTuple

from benchmarks.initialisation.costs import Costs, Record
from benchmarks.initialisation.intervals import Interval, mean_over
from lingraft.config.systems import System
from lingraft.reports.paper.efficiency import LearningCurve

_Curves = dict[str, LearningCurve]
_Values = dict[str, dict[tuple[str, int], float]]


class AtEqualCost(NamedTuple):
    """Means over the same languages and seeds for all systems; None where one of these is not known of a system."""

    score_at_flops: Interval | None
    """Score after the FLOPs that the cheapest system of a language and seed takes for its whole adaptation."""
    score_at_seconds: Interval | None
    """Score after the seconds of the quickest one."""
    times_less_to_common: Interval | None
    """Times less compute than BL_BASE takes to the lowest final score of all systems, a score that all reach, in the
    cases in which both need updates to it."""
    lead: Interval | None
    """Difference of its score at these FLOPs from BL_BASE's."""
    ahead: list[bool]
    """Whether it is above, case by case."""


def at_equal_cost(records: Sequence[Record], task: str) -> dict[str, AtEqualCost]:
    """Compare systems at equal cost, alignments included.

    Args:
        records: of one start; languages and seeds that some system lacks are left out.
        task: one that is judged before and after adaptation only has no curves, and nothing to compare.
    """
    systems = list(dict.fromkeys(record["system"] for record in records))
    flops, seconds, common = (dict[str, dict[tuple[str, int], float]]() for _ in range(3))
    complete = [*_complete(records, task, systems)]
    for place, by_flops, by_seconds in complete:
        _note(flops, place, _scores_at_least_cost(by_flops))
        _note(seconds, place, _scores_at_least_cost(by_seconds))
        _note(common, place, _times_less_to_common(by_flops))
    base = flops.get(System.BL_BASE, {})
    leads = {
        system: {place: score - base[place] for place, score in scores.items() if place in base}
        for system, scores in flops.items()
    }

    def mean_of(system: str, values: _Values) -> Interval | None:
        known = values.get(system, {})
        return mean_over(known) if len(known) == len(complete) else None

    return {
        system: AtEqualCost(
            *(mean_of(system, values) for values in (flops, seconds, common, leads)),
            ahead=[lead > 0 for lead in leads.get(system, {}).values()],
        )
        for system in systems
    }


def _complete(
    records: Sequence[Record], task: str, systems: Sequence[str]
) -> Iterator[tuple[tuple[str, int], _Curves, _Curves]]:
    """Curves over FLOPs and over seconds, of languages and seeds that all systems have."""
    for language in dict.fromkeys(record["language"] for record in records):
        its = [record for record in records if record["language"] == language]
        costs = Costs(its, task)
        for seed in dict.fromkeys(record["seed"] for record in its):
            ones = {record["system"]: record for record in its if record["seed"] == seed}
            by_flops = {name: curve for name, one in ones.items() if (curve := costs.curve(one))}
            if {*by_flops} == {*systems}:
                by_seconds = {name: curve for name, one in ones.items() if (curve := costs.curve(one, seconds=True))}
                yield (language, seed), by_flops, by_seconds


def _note(values: _Values, place: tuple[str, int], found: dict[str, float]) -> None:
    for system, value in found.items():
        values.setdefault(system, {})[place] = value


def _scores_at_least_cost(curves: _Curves) -> dict[str, float]:
    budget = min(curve.costs[-1] for curve in curves.values())
    return {name: curve.at(budget) for name, curve in curves.items() if curve.costs[0] <= budget}


def _times_less_to_common(curves: _Curves) -> dict[str, float]:
    target = min(curve.scores[-1] for curve in curves.values())
    # Of what is there before any update only an alignment was paid, by seconds of a clock.
    spent = {name: nan if curve.scores[0] >= target else curve.reach(target).estimate for name, curve in curves.items()}
    return {name: spent[System.BL_BASE] / own for name, own in spent.items()} if System.BL_BASE in spent else {}

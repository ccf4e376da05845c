"""Numbers in what a person wrote about the results: it has places for them, which are filled from the records.

`{share[modern MINIJOINT pos]}` is such a place: a kind of number, then the encoder, the system and the task. It is a
range over all starts; `{share[modern text MINIJOINT pos]}` is of one start,
`{score[modern text MINIJOINT pos ru 1]}` of one language with a seed, and
`{share[modern by depth MINIJOINT pos]}` of the comparison of depths.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from statistics import mean

from benchmarks.initialisation.budgets import at_equal_cost
from benchmarks.initialisation.overview import Column, Section
from lingraft.config.systems import System
from lingraft.errors import LingraftError

_SOURCE, _LEAD, _CASES = "source", "lead", ("ahead", "early")
_FORMS = dict.fromkeys(("score", "equal", _SOURCE), ".1f")
_FORMS |= dict.fromkeys(("share", "initial", "compute", "updates", "rise"), ".0f")
_EARLY = 1 / 3
_PLACE = re.compile(r"\{(\w+)\[([^]]+)\]\}")


def filled(reading: str, its: Iterable[Section]) -> str:
    """Fill the places of a reading.

    Kinds are, in percent, `score`, the final one; `equal`, at equal compute; `source`, that of the source language, as
    a mean over seeds; `share` and `initial`, the final score and that of untrained rows, of BL_BASE's final score;
    `rise`, what the last third of the updates adds to the score; `compute` and `updates`, of BL_BASE's compute with and
    without alignments. In points with an interval, `lead` is how far a system is above BL_BASE at equal compute. Of
    cases, `ahead` counts those in which it is, and `early`, among those that need updates to the target, those that
    are there within a third of them all.

    Args:
        reading: text with places.
        its: sections of all records.

    Raises:
        LingraftError: the records have no number for a place.
    """
    if not _PLACE.search(reading):
        return reading
    numbers = dict[tuple[str, str], list[float]]()
    for section in its:
        for kind, name, values in _numbers(section):
            for key in _keys(section, name):
                numbers.setdefault((kind, key), []).extend(values)

    def number(place: re.Match[str]) -> str:
        kind, key = place.groups()
        if (kind, key) not in numbers:
            raise LingraftError(f"the reading has the place {place[0]}, of which the records have no number.")
        return _in_words(kind, numbers[kind, key])

    return _PLACE.sub(number, reading)


def _keys(section: Section, name: str) -> list[str]:
    family = section.found["sizes"]["family"]
    if section.is_by_depth:
        return [f"{family} by depth {name}"]
    return [f"{family} {name}", f"{family} {section.start} {name}"]


def _in_words(kind: str, values: Sequence[float]) -> str:
    if kind in _CASES:
        return f"{sum(values):.0f} of {len(values)}"
    if kind == _LEAD:
        leads = zip(values[::3], values[1::3], values[2::3], strict=True)
        return " and ".join(f"{100 * value:.1f} ({100 * low:.1f} to {100 * high:.1f})" for value, low, high in leads)
    if kind == _SOURCE:
        values = [mean(values)]
    low, high = (f"{100 * choose(values):{_FORMS[kind]}}" for choose in (min, max))
    return low if low == high else f"{low} to {high}"


def _numbers(section: Section) -> Iterator[tuple[str, str, list[float]]]:
    """Yield kind, name and values of all numbers."""
    for column in section.columns:
        for kind, system, values in [*_scores(column), *_costs(column)]:
            yield kind, f"{system} {column.task}", values
    yield from _single(section)


def _single(section: Section) -> Iterator[tuple[str, str, list[float]]]:
    """Yield kind, name and value of scores of one language with a seed, and of those in the source language."""
    for record in section.found["records"]:
        if record["start"] == section.start:
            for task, scores in record["scores"].items():
                yield "score", f"{record['system']} {task} {record['language']} {record['seed']}", [scores[-1]]
    for primary in section.found.get("primaries", []):
        for system in primary["systems"]:
            for task, score in primary["scores"].items():
                yield _SOURCE, f"{system} {task}", [score]


def _scores(column: Column) -> Iterator[tuple[str, str, list[float]]]:
    """Yield kind, system and values of scores."""
    scores = {system: float(found_R[0]) for system, found_R in column.scores.by_system.items()}
    for system, score in scores.items():
        initial = mean(one["scores"][column.task][0] for one in column.of(system))
        yield "score", system, [score]
        yield "share", system, [column.shares[system].value]
        yield "initial", system, [initial / scores[System.BL_BASE]]
    for system, equal in at_equal_cost(column.records, column.task).items():
        if equal.score_at_flops:
            yield "equal", system, [equal.score_at_flops.value]
            yield "ahead", system, [*map(float, equal.ahead)]
        if equal.lead:
            yield _LEAD, system, [*equal.lead]


def _costs(column: Column) -> Iterator[tuple[str, str, list[float]]]:
    """Yield kind, system and values of costs."""
    for system in column.shares:
        its, base = ([one["flops"][-1] for one in column.of(name)] for name in (system, System.BL_BASE))
        yield "compute", system, [column.compute(system)]
        yield "updates", system, [sum(its) / sum(base)]
        yield from _shapes(column, system)


def _shapes(column: Column, system: str) -> Iterator[tuple[str, str, list[float]]]:
    """Yield how soon the curves of a system are at the target, and what they gain at the end, if there are curves."""
    early, before = [], []
    for one in column.of(system):
        costs = column.costs[one["language"]]
        curve, updates, own = costs.curve(one), one["flops"][-1], costs.alignment_flops(one)
        reached = costs.reached_by_updates(one)
        if curve is None or reached is None:
            return
        if reached:
            early.append(float(reached <= own + _EARLY * updates))
        before.append(curve.at(own + (1 - _EARLY) * updates))
    yield "early", system, early
    yield "rise", system, [mean(one["scores"][column.task][-1] for one in column.of(system)) / mean(before) - 1]

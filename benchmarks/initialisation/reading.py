"""Numbers in what a person wrote about the results: it has places for them, which are filled from the records.

`{share[modern MINIJOINT pos]}` is such a place: a kind of number, then the encoder, the system and the task. It is a
range over all starts; `{share[modern text MINIJOINT pos]}` is of one start, `{score[modern MINIJOINT pos ru]}` of one
language, and `{share[modern by depth MINIJOINT pos]}` of the comparison of depths.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from statistics import mean

from benchmarks.initialisation.arms import WHOLE
from benchmarks.initialisation.budgets import at_equal_cost
from benchmarks.initialisation.overview import Column, Section
from lingraft.config.systems import System
from lingraft.errors import LingraftError

_SOURCE, _CASES = "source", "ahead"
_FORMS = dict.fromkeys(("score", "equal", _SOURCE), ".1f")
_FORMS |= dict.fromkeys(("share", "initial", "of_whole", "compute", "updates"), ".0f")
_PLACE = re.compile(r"\{(\w+)\[([^]]+)\]\}")


def filled(reading: str, its: Iterable[Section]) -> str:
    """Fill the places of a reading.

    Kinds are, in percent, `score`, the final one; `equal`, at equal compute; `source`, that of the source language, as
    a mean over seeds; `share` and `initial`, the final score and that of untrained rows, of BL_BASE's final score;
    `of_whole`, of the score of MINIJOINT over all layers; `compute` and `updates`, of BL_BASE's compute with and
    without alignments. `ahead` counts the cases in which a system is ahead of BL_BASE at equal compute.

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
    if kind == _CASES:
        return f"{sum(values):.0f} of {len(values)}"
    if kind == _SOURCE:
        values = [mean(values)]
    low, high = (f"{100 * choose(values):{_FORMS[kind]}}" for choose in (min, max))
    return low if low == high else f"{low} to {high}"


def _numbers(section: Section) -> Iterator[tuple[str, str, list[float]]]:
    """Yield kind, name and values of all numbers."""
    for column in section.columns:
        for kind, system, values in [*_scores(column), *_costs(column)]:
            yield kind, f"{system} {column.task}", values
        for language in column.scores.languages:
            for system in column.shares:
                ends = [one["scores"][column.task][-1] for one in column.of(system) if one["language"] == language]
                yield "score", f"{system} {column.task} {language}", [mean(ends)]
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
    if WHOLE in scores:
        yield "of_whole", System.MINIJOINT, [scores[System.MINIJOINT] / scores[WHOLE]]
    for system, equal in at_equal_cost(column.records, column.task).items():
        if equal.score_at_flops:
            yield "equal", system, [equal.score_at_flops.value]
            yield _CASES, system, [*map(float, equal.ahead)]


def _costs(column: Column) -> Iterator[tuple[str, str, list[float]]]:
    """Yield kind, system and values of costs."""
    for system in column.shares:
        its, base = ([one["flops"][-1] for one in column.of(name)] for name in (system, System.BL_BASE))
        yield "compute", system, [column.compute(system)]
        yield "updates", system, [sum(its) / sum(base)]

"""Means over languages: what each system ends with in each task, and what it takes to get there."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf, isfinite, nan
from statistics import mean
from typing import Any, NamedTuple

from benchmarks.initialisation.arms import Start, in_order
from benchmarks.initialisation.costs import (
    TASK_NAMES,
    Costs,
    Record,
    by_depth,
    is_fitted,
    tasks_with_curves,
    without_depths,
)
from benchmarks.initialisation.intervals import FinalScores, Interval, final_scores, mean_over, shares_of_base
from lingraft.config.systems import System
from lingraft.reports.paper.efficiency import informative
from lingraft.tables import capital, counted, markdown_table

UNKNOWN = "–"
_TRIVIAL, _INITIAL = "*trivial answer*", "*BL_BASE, as initialised*"
_CEILING, _SOURCE = "*BL_BASE, finetuned on labels in the language ({})*", "*BL_BASE, in the source language*"
_ROWS = {
    Start.OVERLAP: "copied by overlap",
    Start.TEXT: "aligned from text alone",
    Start.DICTIONARY: "aligned by a dictionary",
    Start.PAIRS: "aligned by sentence pairs",
}
"""Starts as titles name them."""
_FAMILIES = {"modern": "a ModernBERT-style encoder", "roberta": "a RoBERTa-style encoder"}
NOT_ALIGNED = "alignment failed for some system or seed"
NOTHING = "Nothing can be compared yet: there are no scores of `BL_BASE` from these rows above the trivial answer."


class Column(NamedTuple):
    """A task over the languages and seeds that all systems have, and in which it says something."""

    task: str
    records: list[Record]
    scores: FinalScores
    shares: dict[str, Interval]
    times: dict[str, str]
    """How many times less compute each system takes than `BL_BASE`; only of what has curves."""
    costs: dict[str, Costs]
    """Costs by language."""

    @property
    def name(self) -> str:
        """Task in words."""
        return TASK_NAMES.get(self.task, self.task)

    @property
    def counts(self) -> str:
        """Languages and seeds that it is of."""
        return f"{', '.join(self.scores.languages)}; {counted(len(self.scores.seeds), 'seed')}"

    def cell(self, system: str, between: str) -> str:
        """Score of a system, its share of BL_BASE's, and how many times less compute it takes.

        Args:
            system: one that may have no scores.
            between: what stands between the numbers.
        """
        if system not in self.shares:
            return UNKNOWN
        numbers = [_percent(Interval.of(self.scores.by_system[system]), ".1f")]
        if system != System.BL_BASE:
            numbers += [_percent(self.shares[system], ".0f", " of BL_BASE's")]
            numbers += [self.times[system]] if system in self.times else []
        return between.join(numbers)

    def of(self, system: str) -> list[Record]:
        """Records of one system."""
        return [one for one in self.records if one["system"] == system]

    def compute(self, system: str) -> float:
        """Share of BL_BASE's compute that a system's whole adaptations take, alignments included."""
        own, base = (
            sum(self.costs[one["language"]].whole(one) for one in self.of(name)) for name in (system, System.BL_BASE)
        )
        return own / base

    def mean(self, values: Mapping[tuple[str, int], float]) -> str:
        """Mean over the languages, and over the seeds of which it is known in all of these."""
        by_seed = [[(language, seed) for language in self.scores.languages] for seed in self.scores.seeds]
        known = [values[place] for places in by_seed if values.keys() >= {*places} for place in places]
        return f"{100 * mean(known):.1f}%" if known else UNKNOWN


class Section(NamedTuple):
    """The adaptations of one shape from one start, in languages whose rows start as it says."""

    found: Mapping[str, Any]
    """Contents of the JSON."""
    records: Sequence[Record]
    not_aligned: Sequence[str]
    """Further languages, whose rows could not be aligned by every system and seed, and are fitted."""
    start: Start
    is_by_depth: bool
    """Whether it compares depths of the mini-model, not systems."""
    columns: Sequence[Column]
    """Tasks that count in some language."""

    @property
    def rows_start(self) -> str:
        """How rows start, in words."""
        return _ROWS[self.start]

    @property
    def title(self) -> str:
        """Encoder and start in words."""
        return f"{capital(family(self.found))}, rows {self._how}"

    @property
    def short_title(self) -> str:
        """Title where the encoder is known."""
        return capital(self._how)

    @property
    def _how(self) -> str:
        return self.rows_start + (", by depth" if self.is_by_depth else "")

    @property
    def by_task(self) -> dict[str, Sequence[Record]]:
        """Records that each column is of."""
        return {column.task: column.records for column in self.columns}

    def rows(self, tasks: Sequence[str], systems: Iterable[str], between: str) -> list[list[str]]:
        """Return a row for each system; of systems, not of depths, before them what they start from, and after them
        what they could reach.

        Args:
            tasks: a cell each; unknown, where a task is none of the columns.
            systems: those that have rows.
            between: what stands between the numbers of a cell.
        """
        cells: dict[str, Callable[[Column], str]] = {
            self._with_compute(system): partial(Column.cell, system=system, between=between) for system in systems
        }
        if not self.is_by_depth:
            cells = {
                _TRIVIAL: lambda column: column.mean(self._trivial(column.task)),
                _INITIAL: lambda column: column.mean(self._initial(column.task)),
                **cells,
                _CEILING.format(self._ceiling_seeds): lambda column: column.mean(self._ceilings(column.task)),
                _SOURCE: lambda column: column.mean(self._in_source(column)),
            }
        columns = {column.task: column for column in self.columns}
        rows = [
            [title, *(cell(columns[task]) if task in columns else UNKNOWN for task in tasks)]
            for title, cell in cells.items()
        ]
        return [row for row in rows if any(cell != UNKNOWN for cell in row[1:])]

    def _with_compute(self, system: str) -> str:
        """Return a system with what its whole adaptation takes, in the languages of the first task."""
        if system == System.BL_BASE or not self.columns or system not in self.columns[0].shares:
            return system
        return f"{system} ({self.columns[0].compute(system):.0%} of the compute)"

    def table(self) -> str:
        """Every task that counts, and the languages that do not."""
        if not self.columns:
            return NOTHING
        tasks = [column.task for column in self.columns]
        rows = self.rows(tasks, in_order(record["system"] for record in self.records), "; ")
        head = ["system", *(f"{column.name} ({column.counts})" for column in self.columns)]
        table = markdown_table(head, rows, left=len(head))
        if self.is_by_depth:  # what does not count is told of all systems
            return table
        parts = [table]
        if left_out := [*self._left_out()]:
            parts += [f"Not counted, since `BL_BASE` is hardly better than the trivial answer: {'; '.join(left_out)}."]
        if self.not_aligned:
            parts += [f"Not counted, since {NOT_ALIGNED}: {', '.join(self.not_aligned)}."]
        return "\n\n".join(parts)

    def _trivial(self, task: str) -> dict[tuple[str, int], float]:
        """Scores of the trivial answer, by language and seed."""
        ones = [one for one in self.records if one["system"] == System.BL_BASE and task in one.get("trivial", {})]
        return {(one["language"], one["seed"]): one["trivial"][task] for one in ones}

    def _initial(self, task: str) -> dict[tuple[str, int], float]:
        """Scores of BL_BASE's rows as they start, by language and seed."""
        ones = [one for one in self.records if one["system"] == System.BL_BASE and task in one["scores"]]
        return {(one["language"], one["seed"]): one["scores"][task][0] for one in ones}

    @property
    def _ceiling_seeds(self) -> str:
        seeds = {one["seed"] for one in self.found.get("ceilings", []) if one["start"] == self.start}
        return counted(len(seeds), "seed")

    def _ceilings(self, task: str) -> dict[tuple[str, int], float]:
        of = (task, self.start)
        ones = [one for one in self.found.get("ceilings", []) if (one["task"], one["start"]) == of]
        return {(one["language"], one["seed"]): one["score"] for one in ones}

    def _in_source(self, column: Column) -> dict[tuple[str, int], float]:
        """Scores of BL_BASE's primaries in the source language, the same for every language."""
        ones = [one for one in self.found.get("primaries", []) if System.BL_BASE in one["systems"]]
        scores = {one["seed"]: one["scores"][column.task] for one in ones if column.task in one["scores"]}
        return {(language, seed): score for seed, score in scores.items() for language in column.scores.languages}

    def _left_out(self) -> Iterator[str]:
        references = [record for record in self.records if record["system"] == System.BL_BASE]
        for task in _tasks(self.records):
            languages = languages_that_count(self.records, task)
            judged = dict.fromkeys(record["language"] for record in references if task in record["scores"])
            if absent := [language for language in judged if language not in languages]:
                yield f"{TASK_NAMES.get(task, task)} in {', '.join(absent)}"


def sections(found: Mapping[str, Any]) -> list[Section]:
    """Group records by start, and those of depths; those without the counts of test items have none.

    Args:
        found: what the JSON of the benchmark holds.
    """
    made = []
    for start in Start:
        if not (of_start := [one for one in found["records"] if one["start"] == start and "items" in one]):
            continue
        made.append(_section(found, without_depths(of_start), of_start))
        if depths := by_depth(of_start):
            made.append(_section(found, depths, of_start, is_by_depth=True))
    return made


def tasks_that_count(its: Sequence[Section]) -> list[str]:
    """Tasks with learning curves that count somewhere, as tables order them: pictures are of these."""
    curves = {task for section in its for task in tasks_with_curves(section.records)}
    return list(dict.fromkeys(each.task for section in its for each in section.columns if each.task in curves))


def _section(
    found: Mapping[str, Any], its: Sequence[Record], of_start: Sequence[Record], is_by_depth: bool = False
) -> Section:
    """Make a section of some records of a start; by all of these it is decided in which languages a task counts."""
    failed = {one["language"] for one in its if is_fitted(one)}
    aligned = [one for one in its if one["language"] not in failed]
    return Section(
        found=found,
        records=aligned,
        not_aligned=sorted(failed),
        start=Start(of_start[0]["start"]),
        is_by_depth=is_by_depth,
        columns=[
            column
            for task in _tasks(aligned)
            if (column := _column(aligned, task, languages_that_count(of_start, task)))
        ],
    )


def fresh_layers(found: Mapping[str, Any]) -> str:
    """Return how many fresh layers MINIPOST has, in words; early records do not say."""
    number = found.get("settings", {}).get("step 1b", {}).get("fresh_layers")
    return counted(number, "fresh layer") if number else "fresh layers"


def family(found: Mapping[str, Any]) -> str:
    """Return the encoder in words; early records do not name it."""
    return _FAMILIES.get(found["sizes"].get("family"), "an encoder")


def _tasks(records: Sequence[Record]) -> list[str]:
    """Tasks with items, those with curves first."""
    found, curves = {task for record in records for task in record["items"]}, tasks_with_curves(records)
    order = [*TASK_NAMES, *sorted(found - TASK_NAMES.keys())]
    return sorted(found, key=lambda task: (task not in curves, order.index(task)))


def languages_that_count(its: Sequence[Record], task: str) -> list[str]:
    """Languages in which the standard way, from the same start and with every seed, learns what the task shows."""
    found: dict[str, bool] = {}
    for record in its:
        if record["system"] == System.BL_BASE and task in record["scores"] and task in record.get("trivial", {}):
            says = informative(record["scores"][task][-1], record["trivial"][task])
            found[record["language"]] = found.get(record["language"], True) and says
    return [language for language, says in found.items() if says]


def _column(its: Sequence[Record], task: str, languages: Sequence[str]) -> Column | None:
    scores = final_scores([record for record in its if record["language"] in languages], task)
    if System.BL_BASE not in scores.by_system:
        return None
    compared = [one for one in its if one["language"] in scores.languages and one["seed"] in scores.seeds]
    costs = {
        language: Costs([record for record in compared if record["language"] == language], task)
        for language in scores.languages
    }
    return Column(
        task=task,
        records=compared,
        scores=scores,
        shares=shares_of_base(scores.by_system),
        times=_times(compared, costs),
        costs=costs,
    )


def _times(its: Sequence[Record], costs: Mapping[str, Costs]) -> dict[str, str]:
    """How many times less compute each system takes to the near-maximal score, where that is known."""
    found = {}
    for system in dict.fromkeys(record["system"] for record in its):
        ones = [one for one in its if one["system"] == system]
        spent = [costs[one["language"]].reached_by_updates(one) for one in ones]
        if None not in spent:
            ratios = {(one["language"], one["seed"]): costs[one["language"]].times_less(one) or nan for one in ones}
            found[system] = _speed_up(ratios, spent.count(inf), spent.count(0))
    return found


def _speed_up(ratios: Mapping[tuple[str, int], float], missed: int, initially: int) -> str:
    """Tell the mean of ratios that are numbers, how many these are, and in how many cases there is none, and why.

    A single one of several says little, and is not told.

    Args:
        ratios: of the cases in which the system and BL_BASE need updates to the target; else no numbers.
        missed: cases in which the system never reaches it.
        initially: cases in which the system needs no update.
    """
    count, of_all = sum(map(isfinite, ratios.values())), f" of {len(ratios)}"
    words = []
    if (count > 1 or len(ratios) == 1) and (known := mean_over(ratios)):
        spread = f"{known.value:.1f}x ({known.low:.1f} to {known.high:.1f})"
        words += [f"speed-up {spread}" + (f" in {count}{of_all}" if count < len(ratios) else "")]
    if missed:
        words += [f"target never reached in {missed}{'' if words else of_all}"]
    if initially and (words or initially < len(ratios)):
        words += [f"no update needed in {initially}{'' if words else of_all}"]
    if behind := len(ratios) - count - missed - initially:
        words += [f"BL_BASE alone needs no update in {behind}{'' if words else of_all}"]
    return ", ".join(words) or "no update needed"


def _percent(interval: Interval, form: str, of: str = "") -> str:
    value, low, high = (f"{100 * each:{form}}" for each in interval)
    return f"{value}%{of} ({low} to {high})"

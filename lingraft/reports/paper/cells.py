"""How numbers, infinities and holes are written in the paper's tables; every mark is explained under its table."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Literal, Self

from lingraft.reports.paper.efficiency import Reached
from lingraft.reports.paper.records import TaskFacts
from lingraft.reports.paper.results_table import MissingValue, ReasonNumbers, ResultsTable
from lingraft.stages.results import SeedScores

Show = Callable[[float], str]
MEAN = "mean"
_NEVER = "∞"
_NOT_INFORMATIVE = "†"
_ONE_SEED = "‡"
_HOLE = "–"
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")


@dataclass(frozen=True)
class TableRow:
    """A line of a table; one that is only there to compare with is quiet."""

    label: str
    cells: tuple[str, ...]
    tone: Literal["", "quiet"] = ""


@dataclass(frozen=True)
class ReportTable:
    """A table as text, the same for Markdown and HTML."""

    number: str
    title: str
    head: tuple[str, ...]
    """Column titles, the first above the rows' labels."""
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def caption(self) -> str:
        """Number and title."""
        return f"{self.number}: {self.title}" if self.number else self.title


class Footnotes:
    """Footnotes of one table: what its marks mean, each reason once, and in short.

    Args:
        reasons: numbers of the reasons of the page's holes.
    """

    def __init__(self, reasons: ReasonNumbers) -> None:
        self._reasons = reasons
        self._holes: dict[str, str] = {}
        self._marks: dict[str, str] = {}
        self._remarks: dict[str, None] = {}
        self._seeds_differ = False

    def missing(self, hole: MissingValue) -> str:
        """A dash with the number of its reason."""
        mark = missing_mark(self._reasons.number(hole))
        self._holes[mark] = hole.short
        return mark

    def never_mark(self) -> str:
        """The mark of what was never reached."""
        self._marks[_NEVER] = "never reached; left out of means"
        return _NEVER

    def language_label(self, results: ResultsTable, task: TaskFacts, language: str) -> str:
        """A language's name, marked if its cells do not count."""
        if results.is_informative(task, language):
            return language
        self._marks[_NOT_INFORMATIVE] = (
            "not informative, since BL_BASE is less than 5 points above the trivial baseline; left out of means"
        )
        return f"{language} {_NOT_INFORMATIVE}"

    def describe_seeds(self, found: Iterable[SeedScores | MissingValue]) -> None:
        """Say how many finetuning seeds a table's scores are means over; where that differs, mark single ones."""
        counts = {len(scores.by_seed) for scores in found if not isinstance(scores, MissingValue)}
        self._seeds_differ = len(counts) > 1
        if counts == {1}:
            self.add("Every score is of one seed, so that nothing is known of its spread.")
        elif counts:
            over = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
            self.add(f"Scores are means over {over} finetuning seeds.")

    def single_seed_mark(self, scores: SeedScores) -> str:
        """The mark of one seed among several."""
        if not (self._seeds_differ and len(scores.by_seed) == 1):
            return ""
        self._marks[_ONE_SEED] = "one seed"
        return _ONE_SEED

    def add(self, remark: str) -> None:
        """Add a sentence."""
        self._remarks[remark] = None

    @property
    def lines(self) -> tuple[str, ...]:
        """All of them, to be shown under the table."""
        holes = [f"{mark}: {reason.rstrip('.')}." for mark, reason in self._holes.items()]
        marks = [f"{mark}: {meaning}." for mark, meaning in self._marks.items()]
        return (*self._remarks, *marks, *holes)


def missing_mark(number: int) -> str:
    """A dash with the number of its reason."""
    return _HOLE + str(number).translate(_RAISED)


@dataclass(frozen=True)
class TimeUnit:
    """One unit of time for a whole table."""

    name: str
    seconds: float

    @classmethod
    def fitting(cls, seconds: Iterable[float]) -> Self:
        """The largest unit in which the shortest time is still 0.1 or more; the paper's numbers give days."""
        shortest = min((time for time in seconds if 0 < time < math.inf), default=1.0)
        units = (cls("days", 86_400), cls("hours", 3_600), cls("minutes", 60), cls("seconds", 1))
        return next((unit for unit in units if shortest >= 0.1 * unit.seconds), units[-1])

    def show(self, seconds: float) -> str:
        """A time in this unit, without its name; one decimal, and more digits for what would be written 0.0."""
        time = seconds / self.seconds
        return f"{time:.1f}" if time >= 0.05 or time == 0 else f"{time:.1g}"

    def interval(self, reached: Reached) -> str:
        """An estimate with the checkpoints around it, in this unit."""
        return f"{self.show(reached.estimate)} ({self.show(reached.lower)}–{self.show(reached.upper)})"


def format_flops(flops: float) -> str:
    """FLOPs with a prefix, such as 54.1 EFLOP."""
    power = max(sum(flops >= 1000**n for n in range(1, len(_PREFIXES))), 0)
    return f"{flops / 1000**power:.1f} {_PREFIXES[power]}FLOP"


def format_points(share: float) -> str:
    """A score in percent, with one decimal and no sign."""
    return f"{100 * share:.1f}"


def format_score(scores: SeedScores | MissingValue, notes: Footnotes) -> str:
    """Mean over finetuning seeds."""
    return (
        notes.missing(scores)
        if isinstance(scores, MissingValue)
        else format_points(scores.mean) + notes.single_seed_mark(scores)
    )


def format_spread(scores: SeedScores | MissingValue, notes: Footnotes) -> str:
    """Mean and standard deviation over finetuning seeds; of a single seed nothing is known of its spread."""
    if isinstance(scores, MissingValue):
        return notes.missing(scores)
    if len(scores.by_seed) == 1:
        return f"{format_points(scores.mean)} (one seed)"
    return f"{format_points(scores.mean)} ± {format_points(scores.deviation)}"


def format_mean(values: Mapping[str, float], of: int, show: Show) -> str:
    """Mean over languages, with how many they are if not all of them."""
    if not values:
        return _HOLE
    count = "" if len(values) == of else f" ({len(values)} of {of})"
    return show(mean(values.values())) + count


def format_reached(reached: Reached | MissingValue, write: Callable[[Reached], str], notes: Footnotes) -> str:
    """What it took to reach a target, or that it was never reached, or why nobody knows."""
    if isinstance(reached, MissingValue):
        return notes.missing(reached)
    return write(reached) if math.isfinite(reached.estimate) else notes.never_mark()

"""Tables of the paper's report: cells, missing values, means and the footnotes that explain every mark."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Literal, Self, TypeVar

from lingraft.reports.paper.efficiency import Reached
from lingraft.reports.paper.records import TaskFacts
from lingraft.reports.paper.results_table import MissingValue, ResultsTable
from lingraft.stages.results import SeedScores
from lingraft.tables import markdown_table

Show = Callable[[float], str]
MEAN = "mean"
UNKNOWN = "–"
_NEVER = "∞"
_NOT_INFORMATIVE = "†"
_ONE_SEED = "‡"
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_Value = TypeVar("_Value")


def missing_mark(number: int) -> str:
    """Return a dash with the number of its reason."""
    return UNKNOWN + str(number).translate(_RAISED)


def format_points(share: float) -> str:
    """Return a score in percent, with one decimal and no sign."""
    return f"{100 * share:.1f}"


def format_spread(scores: SeedScores) -> str:
    """Return mean and standard deviation over finetuning seeds; one seed says nothing of spread."""
    if len(scores.by_seed) == 1:
        return f"{format_points(scores.mean)} (one seed)"
    return f"{format_points(scores.mean)} ± {format_points(scores.deviation)}"


def format_ratio(ratio: float) -> str:
    """Return a speed-up, such as 2.31×."""
    return f"{ratio:.2f}×"


def format_mean(values: Mapping[str, float], of: int, show: Show) -> str:
    """Return the mean over languages, with how many they are if not all `of` them."""
    if not values:
        return UNKNOWN
    count = "" if len(values) == of else f" ({len(values)} of {of})"
    return show(mean(values.values())) + count


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

    def markdown(self) -> list[str]:
        """Return the lines of the table in Markdown, with its caption and notes."""
        rows = [(f"*{row.label}*" if row.tone else row.label, *row.cells) for row in self.rows]
        body = markdown_table(self.head, rows).splitlines()
        return [f"**{self.caption}**", "", *body, "", *(line for note in self.notes for line in (note, ""))]


class Footnotes:
    """Footnotes of one table: the meaning of its marks, each reason once, and in short."""

    def __init__(self, results: ResultsTable) -> None:
        self._results = results
        self._reasons: dict[str, str] = {}
        self._marks: dict[str, str] = {}
        self._remarks: dict[str, None] = {}
        self._seeds_differ = False

    @property
    def lines(self) -> tuple[str, ...]:
        """All footnotes, to be shown under the table."""
        reasons = [f"{mark}: {reason.rstrip('.')}." for mark, reason in self._reasons.items()]
        marks = [f"{mark}: {meaning}." for mark, meaning in self._marks.items()]
        return (*self._remarks, *marks, *reasons)

    def add(self, remark: str) -> None:
        """Add a sentence."""
        self._remarks[remark] = None

    def missing(self, value: MissingValue) -> str:
        """Return a dash with the number of the reason."""
        mark = missing_mark(self._results.reason_number(value))
        self._reasons[mark] = value.short
        return mark

    def cell(self, value: _Value | MissingValue, write: Callable[[_Value], str]) -> str:
        """Return a value as text, or the mark of why it is missing."""
        return self.missing(value) if isinstance(value, MissingValue) else write(value)

    def language_label(self, task: TaskFacts, language: str) -> str:
        """Return a language's name, marked if its cells do not count."""
        if self._results.is_informative(task, language):
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

    def score(self, scores: SeedScores) -> str:
        """Return the mean over finetuning seeds, with the mark of a single seed among several."""
        if not (self._seeds_differ and len(scores.by_seed) == 1):
            return format_points(scores.mean)
        self._marks[_ONE_SEED] = "one seed"
        return format_points(scores.mean) + _ONE_SEED

    def reached(self, reached: Reached, write: Callable[[Reached], str]) -> str:
        """Return what it took to reach a target, or that it was never reached."""
        if math.isfinite(reached.estimate):
            return write(reached)
        self._marks[_NEVER] = "never reached; left out of means"
        return _NEVER


class TaskTable:
    """A table of one task in the making: a column for each language, and the mean over the languages that count."""

    def __init__(self, results: ResultsTable, task: TaskFacts) -> None:
        self.notes = Footnotes(results)
        self._results = results
        self._task = task
        self.rows: list[TableRow] = []

    def add_row(
        self,
        label: str,
        found: Mapping[str, _Value | MissingValue],
        write: Callable[[_Value], str],
        number: Callable[[_Value], float],
        show: Show = format_points,
        tone: Literal["", "quiet"] = "",
    ) -> None:
        """Add a line.

        Args:
            label: name of the line.
            found: values by language.
            write: makes a value a cell.
            number: makes a value what is averaged; an infinite one is left out of the mean.
            show: makes the mean a cell.
            tone: "quiet" for a line that is only there to compare with.
        """
        cells = [self.notes.cell(value, write) for value in found.values()]
        numbers = {language: number(value) for language, value in self._results.counted(self._task, found).items()}
        finite = {language: each for language, each in numbers.items() if math.isfinite(each)}
        self.rows.append(TableRow(label, (*cells, format_mean(finite, len(found), show)), tone))

    def finished(self, number: str, title: str) -> ReportTable:
        """Return the table, by its number in the paper and a title without the task's."""
        labels = [self.notes.language_label(self._task, language) for language in self._task.languages]
        head = ("system", *labels, MEAN)
        return ReportTable(number, f"{self._task.title}, {title}", head, tuple(self.rows), self.notes.lines)


@dataclass(frozen=True)
class TimeUnit:
    """One unit of time for a whole table."""

    name: str
    seconds: float

    @classmethod
    def fitting(cls, seconds: Iterable[float]) -> Self:
        """Choose the largest unit in which the shortest time is still 0.1 or more; the paper's numbers give days."""
        shortest = min((time for time in seconds if 0 < time < math.inf), default=1.0)
        units = (cls("days", 86_400), cls("hours", 3_600), cls("minutes", 60), cls("seconds", 1))
        return next((unit for unit in units if shortest >= 0.1 * unit.seconds), units[-1])

    @classmethod
    def of_reached(cls, found: Iterable[Reached | MissingValue]) -> Self:
        """Choose the unit that fits the estimates of when targets were reached."""
        return cls.fitting(reached.estimate for reached in found if isinstance(reached, Reached))

    def show(self, seconds: float) -> str:
        """Return a time in this unit, without its name; one decimal, and more digits for what would be written 0.0."""
        time = seconds / self.seconds
        return f"{time:.1f}" if time >= 0.05 or time == 0 else f"{time:.1g}"

    def estimate(self, reached: Reached) -> str:
        """Return an estimate in this unit."""
        return self.show(reached.estimate)

    def interval(self, reached: Reached) -> str:
        """Return an estimate with the checkpoints around it, in this unit."""
        return f"{self.show(reached.estimate)} ({self.show(reached.lower)}–{self.show(reached.upper)})"

"""Columns of the report's tables: what each one shows, in plain words, and how its numbers are written.

Those of tasks are in `lingraft.reports.run.task_columns`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

from lingraft.data.languages import language_name
from lingraft.reports.run.records import ResultRow, RunRecords
from lingraft.stages.results import AlignmentBasis, LanguageResult, SeedScores

UNKNOWN = "–"
"""Stands for what was not measured."""

Show = Callable[[float], str]
_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")


def percent(share: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{share:.1%}"


def count(number: float) -> str:
    """A whole number with separators."""
    return f"{number:,.0f}"


def seconds(elapsed_s: float) -> str:
    """Seconds with one decimal, without their unit."""
    return f"{elapsed_s:,.1f}"


def spread(scores: SeedScores) -> str:
    """Mean over seeds, and where there are several their standard deviation, in percentage points."""
    deviation = f" ± {100 * scores.deviation:.1f}" if len(scores.by_seed) > 1 else ""
    return percent(scores.mean) + deviation


@dataclass(frozen=True)
class FlopsUnit:
    """One unit for all of a report, so that its numbers compare at a glance."""

    name: str
    scale: float

    @classmethod
    def fitting(cls, records: RunRecords) -> "FlopsUnit":
        """The largest unit in which the cheapest training still takes 1 or more."""
        costs = [row.cost.flops for row in records.languages] + [records.source.pretraining.flops]
        smallest = min((cost for cost in costs if cost > 0), default=1.0)
        power = sum(smallest >= 1000**n for n in range(1, len(_PREFIXES)))
        return cls(f"{_PREFIXES[power]}FLOP", 1000.0**power)

    def show(self, flops: float) -> str:
        """FLOPs in this unit, without its name."""
        return f"{flops / self.scale:,.1f}"


@dataclass(frozen=True)
class Column:
    """One number per row; a mean row shows the mean of its languages' numbers."""

    title: str
    short: str
    """Heading where room is scarce."""
    meaning: str
    value: Callable[[LanguageResult], float | None]
    show: Show
    scores: Callable[[LanguageResult], SeedScores | None] | None = None
    """Where the number is a mean over seeds: all of them, to show how far they spread."""

    def cell(self, row: ResultRow) -> str:
        """The number as text."""
        values = [self.value(result) for result in row.results]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return UNKNOWN
        seeds = self.scores(row.results[0]) if self.scores and len(row.results) == 1 else None
        return spread(seeds) if seeds else self.show(mean(known))


@dataclass(frozen=True)
class Group:
    """Columns under one heading."""

    title: str
    short: str
    columns: tuple[Column, ...]


def overlap_group(records: RunRecords) -> Group:
    """Pieces shared with the source's vocabulary."""
    source = language_name(records.source.language)
    of = f"also in the vocabulary of {source}"
    return Group(
        f"overlap with {source}",
        "overlap",
        (
            Column(
                "tokens",
                "tokens",
                f"Pieces of the language's vocabulary that are {of}. Initialisation by overlap copies all their "
                "embeddings; aligned initialisation copies those that mean the same.",
                lambda row: row.overlap,
                count,
            ),
            Column(
                "share",
                "share",
                "The same as a share of the language's vocabulary.",
                lambda row: row.overlap / row.vocabulary,
                percent,
            ),
        ),
    )


def masked_groups() -> list[Group]:
    """Held-out masked-token accuracy of the mini-model and of the primary, before and after."""
    mini = (
        Column(
            "before",
            "before",
            "The mini-model (the layers learned over and the head on them) with the embeddings as initialised.",
            lambda row: row.masked.mini_initial,
            percent,
        ),
        Column(
            "after",
            "after",
            "The mini-model with the embeddings that were learned over it.",
            lambda row: row.masked.mini,
            percent,
        ),
    )
    primary = (
        Column(
            "before",
            "before",
            "The whole primary, all layers, with the embeddings as initialised.",
            lambda row: row.masked.primary_initial,
            percent,
        ),
        Column(
            "after",
            "after",
            "The whole primary with the learned embeddings swapped in: the test of whether what "
            "was learned over a few layers fits all of them.",
            lambda row: row.masked.primary,
            percent,
        ),
    )
    return [Group("masked: mini-model", "mini-model", mini), Group("masked: primary", "primary", primary)]


def alignment_groups(records: RunRecords) -> list[Group]:
    """Retrieval of counterparts in the source language, before and after; none where no language has been measured."""
    if not (what := alignment_note(records)):
        return []
    columns = (
        Column(
            "before",
            "before",
            f"{what} With the embeddings as initialised.",
            lambda row: row.alignment.top_initial.accuracy if row.alignment else None,
            percent,
        ),
        Column(
            "after",
            "after",
            "The same with the learned embeddings.",
            lambda row: row.alignment.top.accuracy if row.alignment else None,
            percent,
        ),
    )
    return [Group(f"alignment with {language_name(records.source.language)}", "alignment", columns)]


def alignment_note(records: RunRecords) -> str:
    """What alignment was measured over; empty where no language has been measured."""
    measured = [result.alignment for result in records.languages if result.alignment]
    if not measured:
        return ""
    pairs = {each.pairs for each in measured}
    of = {AlignmentBasis.PARALLEL: "parallel paragraphs", AlignmentBasis.PIECES: "shared pieces' contexts"}
    bases = " or ".join(name for basis, name in of.items() if basis in {each.basis for each in measured})
    among = count(min(pairs)) if len(pairs) == 1 else f"{count(min(pairs))} to {count(max(pairs))}"
    return (
        "Share of top-layer hidden states nearest to their counterpart in "
        f"{language_name(records.source.language)}, both ways, among {among} {bases}."
    )


def initial_rows_note(result: LanguageResult, source: str) -> str:
    """How a language's rows were initialised, and how well its pieces were aligned with the source's."""
    if result.initial_alignment:
        return f"alignment with {language_name(source)} {result.initial_alignment.summary}."
    copied = f"{count(result.overlap)} of {count(result.vocabulary)} rows are copied from {language_name(source)}"
    return f"not aligned with {language_name(source)}; {copied}."


def cost_group(unit: FlopsUnit) -> Group:
    """What adaptation took, beside what it would have taken over all layers."""
    columns = (
        Column("seconds", "seconds", "Time spent training the embeddings.", lambda row: row.cost.elapsed_s, seconds),
        Column(
            unit.name,
            unit.name,
            f"Floating-point operations spent, by the paper's formulas, in {unit.name}.",
            lambda row: row.cost.flops,
            unit.show,
        ),
        Column(
            f"all layers, {unit.name}",
            "all layers",
            "What as many updates over all layers (standard adaptation) cost by the same formulas.",
            lambda row: row.whole_flops,
            unit.show,
        ),
        Column(
            "spent / all layers",
            "ratio",
            "Operations spent as a share of that.",
            lambda row: row.cost.flops / row.whole_flops,
            percent,
        ),
    )
    return Group("cost of adaptation", "cost of adaptation", columns)

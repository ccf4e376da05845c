"""Columns of the report's tables: what each one shows, in plain words, and how its numbers are written."""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean
from typing import TypeVar

from lingraft.data.languages import language_name
from lingraft.reports.run.records import ResultRow, RunRecords
from lingraft.stages.results import (
    BM25,
    SOURCE_TOKENIZER,
    WITHIN,
    AlignmentBasis,
    LanguageResult,
    SeedScores,
    TaskScores,
    metric_label,
)
from lingraft.tables import capital, flops_unit, percent
from lingraft.tasks.class_scores import MACRO_F1

UNKNOWN = "–"
"""Cell of a number that was not measured."""
_Value = Callable[[LanguageResult], float | None]
_T = TypeVar("_T")
_MEANINGS = {
    MACRO_F1: "Mean of the classes' F1 with the learned embeddings: a rare class counts as much as a frequent one, so "
    "that a class that is never found shows.",
}

_BASELINES = {
    BM25: "the ranking by pieces that query and passage share, BM25",
    SOURCE_TOKENIZER: "the source's own embeddings, given the pieces of the source's own tokenizer",
}


def count(number: float) -> str:
    """Return a whole number with separators."""
    return f"{number:,.0f}"


def seconds(elapsed_s: float) -> str:
    """Return seconds with one decimal, without their unit."""
    return f"{elapsed_s:,.1f}"


def spread(scores: SeedScores) -> str:
    """Return the mean over seeds, and where there are several their standard deviation, in percentage points."""
    deviation = f" ± {100 * scores.deviation:.1f}" if len(scores.by_seed) > 1 else ""
    return percent(scores.mean) + deviation


@dataclass(frozen=True)
class FlopsUnit:
    """One unit for all of a report, so that its numbers compare at a glance."""

    name: str
    scale: float

    @classmethod
    def fitting(cls, records: RunRecords) -> "FlopsUnit":
        """Choose the largest unit in which the cheapest training still takes 1 or more."""
        costs = [row.cost.flops for row in records.languages] + [records.source.pretraining.flops]
        name, scale = flops_unit(min((cost for cost in costs if cost > 0), default=1.0))
        return cls(name, scale)

    def show(self, flops: float) -> str:
        """Return FLOPs in this unit, without its name."""
        return f"{flops / self.scale:,.1f}"


@dataclass(frozen=True)
class _Headed:
    """A part of a table with a heading."""

    title: str
    short: str = field(default="", kw_only=True)
    """Heading where room is scarce; the title if empty."""

    @property
    def heading(self) -> str:
        """Heading where room is scarce."""
        return self.short or self.title


@dataclass(frozen=True)
class Column(_Headed):
    """One number per row; a mean row shows the mean of its languages' numbers."""

    meaning: str
    value: _Value
    show: Callable[[float], str] = percent
    scores: Callable[[LanguageResult], SeedScores | None] | None = None
    """All scores where the number is a mean over seeds, to show how far they spread."""

    def cell(self, row: ResultRow) -> str:
        """Return the number of a row as text."""
        values = [self.value(result) for result in row.results]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return UNKNOWN
        seeds = self.scores(row.results[0]) if self.scores and len(row.results) == 1 else None
        return spread(seeds) if seeds else self.show(mean(known))


@dataclass(frozen=True)
class Group(_Headed):
    """Columns under one heading."""

    columns: tuple[Column, ...]


def overlap_group(records: RunRecords) -> Group:
    """Return columns on the pieces shared with the source's vocabulary."""
    source = language_name(records.source.language)
    tokens = (
        f"Pieces of the language's vocabulary that are also in the vocabulary of {source}. Initialisation by overlap "
        "copies all their embeddings; aligned initialisation copies those that mean the same."
    )
    share = "The same as a share of the language's vocabulary."
    columns = (
        Column("tokens", tokens, lambda row: row.overlap, count),
        Column("share", share, lambda row: row.overlap / row.vocabulary),
    )
    return Group(f"overlap with {source}", columns, short="overlap")


def masked_groups(records: RunRecords) -> list[Group]:
    """Return columns on held-out masked-token accuracy of the mini-model and of the primary, before and after.

    There are none where no model has an MLM head.
    """
    if not records.has_masked_scores:
        return []
    mini = (
        Column(
            "before",
            "The mini-model (the layers learned over and the head on them) with the embeddings as initialised.",
            lambda row: row.masked_scores.get("mini_initial"),
        ),
        Column(
            "after",
            "The mini-model with the embeddings that were learned over it.",
            lambda row: row.masked_scores.get("mini"),
        ),
    )
    primary = (
        Column(
            "before",
            "The whole primary, all layers, with the embeddings as initialised.",
            lambda row: row.masked_scores.get("primary_initial"),
        ),
        Column(
            "after",
            "The whole primary with the learned embeddings swapped in: the test of whether what "
            "was learned over a few layers fits all of them.",
            lambda row: row.masked_scores.get("primary"),
        ),
    )
    return [
        Group("masked: mini-model", mini, short="mini-model"),
        Group("masked: primary", primary, short="primary"),
    ]


def alignment_groups(records: RunRecords) -> list[Group]:
    """Return columns on retrieval of counterparts in the source language; none where no language has been measured."""
    if not (what := alignment_note(records)):
        return []
    before = f"{what} With the embeddings as initialised."
    columns = (
        Column("before", before, lambda row: row.alignment.top_initial.accuracy if row.alignment else None),
        Column(
            "after",
            "The same with the learned embeddings.",
            lambda row: row.alignment.top.accuracy if row.alignment else None,
        ),
    )
    return [Group(f"alignment with {language_name(records.source.language)}", columns, short="alignment")]


def alignment_note(records: RunRecords) -> str:
    """Say what alignment was measured over; empty where no language has been measured."""
    measured = [result.alignment for result in records.languages if result.alignment]
    if not measured:
        return ""
    pairs = {each.pairs for each in measured}
    bases = " or ".join(basis.label for basis in AlignmentBasis if basis in {each.basis for each in measured})
    among = count(min(pairs)) if len(pairs) == 1 else f"{count(min(pairs))} to {count(max(pairs))}"
    return (
        "Share of top-layer hidden states nearest to their counterpart in "
        f"{language_name(records.source.language)}, both ways, among {among} {bases}."
    )


def initial_rows_note(result: LanguageResult, source: str) -> str:
    """Say how a language's rows were initialised, and how well its pieces were aligned with the source's."""
    if result.initial_alignment:
        return f"alignment with {language_name(source)} {result.initial_alignment.summary}."
    copied = f"{count(result.overlap)} of {count(result.vocabulary)} rows are copied from {language_name(source)}"
    return f"not aligned with {language_name(source)}; {copied}."


def cost_group(unit: FlopsUnit) -> Group:
    """Return columns on what adaptation took, beside what it would have taken over all layers."""
    columns = (
        Column("seconds", "Time spent training the embeddings.", lambda row: row.cost.elapsed_s, seconds),
        Column(
            unit.name,
            f"Floating-point operations spent, by the paper's formulas, in {unit.name}.",
            lambda row: row.cost.flops,
            unit.show,
        ),
        Column(
            f"all layers, {unit.name}",
            "What as many updates over all layers (standard adaptation) cost by the same formulas.",
            lambda row: row.whole_flops,
            unit.show,
            short="all layers",
        ),
        Column(
            "spent / all layers",
            "Operations spent as a share of that.",
            lambda row: row.cost.flops / row.whole_flops,
            short="ratio",
        ),
    )
    return Group("cost of adaptation", columns)


def task_group(records: RunRecords, task: str) -> Group:
    """Return columns on zero-shot scores on a task; a language that was not tested on it has none."""
    scores = records.scores(task)
    metric = capital(metric_label(scores.metric))

    def of(take: Callable[[TaskScores], _T]) -> Callable[[LanguageResult], _T | None]:
        return lambda result: take(result.task_scores[task]) if task in result.task_scores else None

    def further(name: str) -> Column:
        return Column(
            metric_label(name),
            _MEANINGS.get(name, f"{capital(metric_label(name))} with the learned embeddings."),
            of(lambda found: found.others[name].mean if name in found.others else None),
            scores=of(lambda found: found.others.get(name)),
        )

    def beside(name: str) -> Column:
        where = " among the language's own passages" if name.startswith(WITHIN) else ""
        return Column(
            metric_label(name),
            f"{metric}{where} of {_BASELINES[name.removeprefix(f'{WITHIN}_')]}.",
            of(lambda found: found.baselines[name].mean if name in found.baselines else None),
        )

    tested = [result.task_scores[task] for result in records.languages if task in result.task_scores]
    meaning = f"{metric} of the best answer that takes no model, such as a constant."
    if _is_classification(scores):
        meaning = "Accuracy of always answering with the test examples' most frequent class."
    cut = Column(
        "long passages",
        "Passages looked for that do not fit a block; only a part of each is read.",
        of(lambda found: found.truncated_passages),
        count,
    )
    columns = (
        Column(
            "before",
            f"{metric} with the embeddings as initialised, untrained.",
            of(lambda found: found.initial.mean if found.initial else None),
        ),
        Column(
            "after",
            f"{metric} with the learned embeddings; the task itself was learned in "
            f"{language_name(records.source.language)} only. ± is the standard deviation over finetuning seeds.",
            of(lambda found: found.score.mean),
            scores=of(lambda found: found.score),
        ),
        *map(further, dict.fromkeys(name for one in (scores, *tested) for name in one.others)),
        *map(beside, dict.fromkeys(name for one in tested for name in one.baselines)),
        Column("trivial", meaning, of(lambda found: found.baseline)),
        Column("examples", "Test examples.", of(lambda found: found.examples), count, short="tests"),
        Column(
            "long",
            "Of these, examples that do not fit a block; only a part of each is read.",
            of(lambda found: found.truncated),
            count,
        ),
        *([cut] if any(found.truncated_passages for found in tested) else ()),
    )
    return Group(f"zero-shot {metric_label(scores.metric)}, {task}", columns)


def baseline_label(task: TaskScores) -> str:
    """Name the trivial answer that a score is seen against."""
    return "most frequent class" if _is_classification(task) else "trivial answer"


def baseline_summary(task: TaskScores) -> str:
    """Say what the trivial answer scores, and over how many examples."""
    return (
        f"{baseline_label(task)} {percent(task.baseline)}; {count(task.examples)} test examples, "
        f"{count(task.truncated)} of them cut to fit a block"
        + (f", and {count(task.truncated_passages)} passages" if task.truncated_passages else "")
    )


def _is_classification(task: TaskScores) -> bool:
    return bool(task.confusion)  # a tagger of words has labels and an accuracy, too, but its trivial answer is a tag

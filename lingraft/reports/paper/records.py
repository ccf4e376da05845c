"""Records of the paper's comparison: one per system, depth, language, task and pretraining seed.

Scores are shares, 0 to 1. A run that failed leaves a record that says why, so that it is a hole in a table and no more.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Self

import pydantic
from pydantic import Field

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.config.systems import System
from lingraft.errors import ArtifactError
from lingraft.reports.paper.efficiency import LearningCurve
from lingraft.stages.results import Result, SeedScores
from lingraft.tables import counted

RECORDS_FILE = "records.json"

Spent = Callable[["CurvePoint"], float]
"""Takes from a checkpoint what it cost, in one of its counts."""


class CurvePoint(Result):
    """One checkpoint of an adaptation, swapped into every finetuned body and tested."""

    step: int = Field(description="Updates so far; 0 for the embeddings as initialised.")
    flops: float = Field(description="Spent so far, by equation A3.")
    elapsed_s: float = Field(description="Seconds of training so far, without the evaluations.")
    scores: SeedScores = Field(description="One score per finetuning seed.")


class Cell(Result):
    """One language adapted by one system, judged on one task: a cell of the paper's tables, with its curve."""

    system: System
    depth: int = Field(description="Bottom layers of the primary that the embeddings were learned over.")
    language: str
    task: str = Field(description="Name of one of the records' tasks.")
    pretraining_seed: int
    points: tuple[CurvePoint, ...] = Field((), description="By rising step; the last is the end of training.")
    failed: str | None = Field(None, description="Why there is no score at the end of training; absent if there is.")

    @property
    def name(self) -> str:
        """The cell in words, for messages."""
        seed = f"pretraining seed {self.pretraining_seed}"
        return f"{self.system} over {counted(self.depth, 'layer')}, {self.language}, {self.task}, {seed}"

    def curve(self, spent: Spent) -> LearningCurve:
        """Return the mean score over finetuning seeds against what a checkpoint took.

        Raises:
            CurveError: no checkpoint, or checkpoints that do not rise.
        """
        return LearningCurve.of(self.name, ((spent(point), point.scores.mean) for point in self.points))


class SourceCell(Result):
    """A model's score in the source language, after finetuning (the paper's table 5)."""

    system: System
    depth: int = Field(description="Layers that the score is of: the primary's, or those of a mini-model.")
    task: str
    pretraining_seed: int
    scores: SeedScores | None = Field(None, description="One per finetuning seed; absent if it failed.")
    failed: str | None = None


class TaskFacts(Result):
    """A task of the comparison."""

    name: str
    title: str = Field(description="As tables show it, such as XNLI.")
    metric: str = Field(description="Such as accuracy, or F1.")
    languages: tuple[str, ...] = Field(description="Languages that it is judged in, in the tables' order.")
    trivial: str = Field("", description="What its trivial baseline is, such as 'majority class'.")
    baselines: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(
        {}, description="Language to the trivial baseline's score."
    )
    appendix: bool = Field(
        False,
        description="Shown in the appendix's tables only and left out of means over tasks, as XQuAD in the paper.",
    )


class LanguageFacts(Result):
    """Facts about a language (the paper's table 1); a fact that is not known is absent."""

    language: str
    text_bytes: int | None = Field(None, description="Bytes of the training text.")
    word_order: str | None = None
    syntactic: float | None = Field(None, description="Syntactic distance from the source, 0 to 1.")
    phylogenetic: float | None = Field(None, description="Phylogenetic distance from the source, 0 to 1.")


class PaperRecords(Result):
    """Everything that tables and figures are drawn from; the content of records.json."""

    title: str = Field(description="Name of the run.")
    source: str = Field(description="Source language.")
    layers: int = Field(description="Layers of the primary.")
    depth: int = Field(description="Depth of BL_SMALL and the mini-models in tables that are not by depth.")
    pretraining_seed: int = Field(description="The pretraining run that all tables but A5 show.")
    systems: tuple[System, ...] = Field(description="Systems planned; a cell of theirs that is missing is a hole.")
    tasks: tuple[TaskFacts, ...]
    languages: tuple[LanguageFacts, ...] = ()
    cells: tuple[Cell, ...]
    source_cells: tuple[SourceCell, ...] = ()
    machine: str = Field("", description="Where the seconds were measured.")
    notes: tuple[str, ...] = Field((), description="Data, licences, and what differs from the paper.")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Open the records of a report that `report.write` wrote.

        Raises:
            ArtifactError: not such a report, or damaged.
        """
        path = Artifact.load(folder, Kind.REPORT).folder / RECORDS_FILE
        if not path.is_file():
            raise ArtifactError(f"{folder} is a report, but not of the paper's comparison. Give the folder of one.")
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8")).checked()
        except pydantic.ValidationError as error:
            raise ArtifactError(f"{path} is damaged: {error}. Make the report again.") from error

    def checked(self) -> Self:
        """Return the records, if they fit each other.

        Raises:
            ArtifactError: nothing to show, a cell given twice or not in the plan, a score that is no share, or seeds
                that change along a curve.
            CurveError: a curve that is empty or not sorted.
        """
        if not (self.tasks and self.systems):
            raise ArtifactError("the paper's comparison needs a system and a task or more. Name them in its records.")
        _require_single("task", (task.name for task in self.tasks))
        _require_single("language's facts", (facts.language for facts in self.languages))
        _require_single("cell", (cell.name for cell in self.cells))
        for cell in self.cells:
            self._require_planned(cell.name, cell, cell.language)
            _require_curve(cell)
        names = [f"{cell.system} over {counted(cell.depth, 'layer')} in {self.source}" for cell in self.source_cells]
        named = list(zip(names, self.source_cells, strict=True))
        _require_single("score", (f"{name}, {cell.task}, seed {cell.pretraining_seed}" for name, cell in named))
        for name, source in named:
            self._require_planned(name, source)
            if (source.scores is None) == (source.failed is None):
                raise ArtifactError(f"{name} must have either scores or the reason why it failed. Give one of them.")
            if source.scores is not None:
                _require_scores(name, source.scores)
        return self

    def _require_planned(self, name: str, cell: Cell | SourceCell, language: str | None = None) -> None:
        tasks = {facts.name: facts.languages for facts in self.tasks}
        if cell.system not in self.systems or cell.task not in tasks:
            raise ArtifactError(
                f"{name} is of a system or task that the records do not plan: systems {[*map(str, self.systems)]}, "
                f"tasks {[*tasks]}. Add it there, or leave the cell out."
            )
        if language is not None and language not in tasks[cell.task]:
            raise ArtifactError(
                f"{name} is of a language that {cell.task} is not judged in: {[*tasks[cell.task]]}. Add it there, or "
                "leave the cell out."
            )
        if cell.system is System.BL_BASE and cell.depth != self.layers:
            raise ArtifactError(f"{name}: BL_BASE adapts over all {self.layers} layers, so its depth must be that.")


def _require_single(what: str, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ArtifactError(f"the records have more than one {what} for {twice}. Keep one of each.")


def _require_curve(cell: Cell) -> None:
    """Refuse a curve that cannot be read; a cell that failed may have none."""
    if cell.failed is not None and not cell.points:
        return
    for point in cell.points:
        _require_scores(f"update {point.step} of {cell.name}", point.scores)
    counts: tuple[Spent, ...] = (lambda point: point.step, lambda point: point.flops, lambda point: point.elapsed_s)
    for spent in counts:
        cell.curve(spent)
    for before, after in itertools.pairwise(cell.points):
        seeds = [sorted(point.scores.by_seed) for point in (before, after)]
        if seeds[0] != seeds[1]:
            raise ArtifactError(
                f"the finetuning seeds of {cell.name} change from {seeds[0]} at update {before.step} to {seeds[1]} at "
                f"{after.step}. Evaluate all checkpoints with the same."
            )


def _require_scores(what: str, scores: SeedScores) -> None:
    odd = {seed: score for seed, score in scores.by_seed.items() if not 0 <= score <= 1}
    if odd or not scores.by_seed:
        raise ArtifactError(
            f"{what} has the scores {odd or {}}, by finetuning seed. Give one or more, each a share from 0 to 1."
        )

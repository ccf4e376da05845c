"""Records of the paper's comparison: one per system, depth, language, task and pretraining seed.

Scores are shares, 0 to 1. A run that failed leaves a record that says why, so that only its cell is
missing from the tables.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Self

import pydantic
from pydantic import Field

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
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
        """Return the mean score over finetuning seeds against what a checkpoint took."""
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
    trivial: str = Field("", description="What its trivial baseline is, such as 'most frequent class'.")
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
    systems: tuple[System, ...] = Field(description="Systems planned.")
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
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except pydantic.ValidationError as error:
            raise ArtifactError(f"{path} is damaged: {error}. Make the report again.") from error

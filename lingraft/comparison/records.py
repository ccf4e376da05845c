"""Records of a comparison: a cell for each system, depth, start, language, task and pretraining seed.

Scores are shares, 0 to 1. A run that failed leaves a cell that says why, so that only its numbers are missing.
"""

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import pydantic
from pydantic import Field

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.failures import failure_reason
from lingraft.artifacts.files import write_bytes
from lingraft.artifacts.manifest import Kind
from lingraft.comparison.plan import MASKED, TRANSLATIONS, Comparison
from lingraft.config.systems import System
from lingraft.errors import ArtifactError
from lingraft.stages.results import RESULT_FILE, Result
from lingraft.tasks.kinds import kind_of

RECORDS_FILE = "records.json"
_OF = "comparison"


class Cell(Result):
    """One language adapted by one system and evaluated on one task, along its learning curve.

    In the source language there is one score, of the primary or a mini-model as it was finetuned.
    """

    system: System
    depth: int = Field(description="Bottom layers of the primary that the score, or the adaptation, is over.")
    start: str = Field("", description="Name of the start; empty where there is only one.")
    language: str
    task: str
    seed: int = Field(description="Of pretraining.")
    steps: tuple[int, ...] = Field((), description="Updates at each checkpoint, rising; the last is the end.")
    flops: tuple[float, ...] = Field((), description="Spent so far, by equation A3.")
    elapsed_s: tuple[float, ...] = Field((), description="Seconds of training so far.")
    start_s: float = Field(0.0, description="Seconds that computing the initial rows took.")
    is_aligned: bool = Field(True, description="False where rows could not be aligned, and fall back to others.")
    scores: dict[int, tuple[float, ...]] = Field({}, description="By finetuning seed, at each checkpoint.")
    trivial: float | None = Field(None, description="Score of the best trivial answer.")
    failed: str | None = Field(None, description="Why there is no score.")

    @property
    def means(self) -> tuple[float, ...]:
        """Mean over finetuning seeds at each checkpoint."""
        return tuple(sum(column) / len(column) for column in zip(*self.scores.values(), strict=True))

    @property
    def has_curve(self) -> bool:
        """Whether it was evaluated at more than both ends."""
        return len(self.steps) > 2


class Records(Result):
    """All that the page is made from; the content of records.json."""

    title: str = Field(description="Name of the comparison.")
    source: str = Field(description="Source language.")
    layers: int = Field(description="Layers of the primary.")
    metrics: dict[str, str] = Field(description="Metric of each task, in the page's order.")
    cells: tuple[Cell, ...]
    settings: dict[str, dict[str, Any]] = Field({}, description="Sections of the recipe, by name.")
    machine: str = Field("", description="Where the seconds were measured.")
    lost: tuple[str, ...] = Field((), description="Why finetuning seeds are missing.")
    notes: tuple[str, ...] = Field((), description="Further sentences on what the numbers do not show.")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file of records, which may be compressed (.xz).

        Raises:
            ArtifactError: there is no such file, or it is damaged.
        """
        try:
            content = path.read_bytes()
            return cls.model_validate_json(lzma.decompress(content) if path.suffix == ".xz" else content)
        except (OSError, lzma.LZMAError, pydantic.ValidationError) as error:
            raise ArtifactError(f"{path} is no record of a comparison: {error}. Give another file.") from error

    def save(self, path: Path) -> None:
        """Write the records, compressed if the name ends in .xz; equal records give equal bytes."""
        raw = self.model_dump(mode="json", exclude_defaults=True)
        content = json.dumps(raw, indent=None if path.suffix == ".xz" else 1).encode()
        write_bytes(path, lzma.compress(content, preset=9) if path.suffix == ".xz" else content)


class EvaluatedCells(Result):
    """Result of one evaluation: the cells of one arm or primary on one task in one language."""

    cells: tuple[Cell, ...] = ()
    lost: tuple[str, ...] = Field((), description="Why finetuning seeds are missing.")
    machine: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether nothing failed."""
        return not self.lost and not any(cell.failed for cell in self.cells)

    def save(self, out: Path) -> Artifact:
        """Write it as an artifact."""
        with artifact.create(out, Kind.EVALUATION) as draft:
            (draft.folder / RESULT_FILE).write_text(self.model_dump_json() + "\n", encoding="utf-8")
            draft.facts = {"details": {"of": _OF}}
        return Artifact.load(out, Kind.EVALUATION)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load an evaluation, or the reason why there is none.

        Raises:
            ArtifactError: not such an evaluation, or damaged.
        """
        if reason := failure_reason(folder):
            return cls(lost=(reason,))
        found = Artifact.load(folder, Kind.EVALUATION)
        try:
            return cls.model_validate_json((found.folder / RESULT_FILE).read_text(encoding="utf-8"))
        except pydantic.ValidationError as error:
            raise ArtifactError(f"{folder / RESULT_FILE} is damaged: {error}. Remove {folder}.") from error


def merge_records(comparison: Comparison, evaluations: Iterable[EvaluatedCells]) -> Records:
    """Merge all evaluations so far; planned scores without an evaluation are missing there."""
    found = [*evaluations]
    recipe = comparison.recipe
    metrics = {task.name: kind_of(task).metric for task in recipe.tasks}
    metrics |= {TRANSLATIONS: "accuracy@1"} if any(arm.recipe.alignment.judged for arm in comparison.arms) else {}
    settings = recipe.model_dump(mode="json", include={"encoder", "pretraining", "mini", "adaptation", "paper"})
    return Records(
        title=recipe.name,
        source=recipe.source.language,
        layers=recipe.encoder.layers,
        metrics=metrics | {MASKED: "accuracy"},
        cells=tuple(cell for one in found for cell in one.cells),
        settings={name: section for name, section in settings.items() if section},
        machine="; ".join(dict.fromkeys(one.machine for one in found if one.machine)),
        lost=tuple(dict.fromkeys(reason for one in found for reason in one.lost)),
    )

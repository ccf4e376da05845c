"""What an evaluation found: what reports, the registry and checks are made from. Scores are shares, 0 to 1."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pydantic

from lingraft import artifact
from lingraft.artifact import Artifact, Cost, Kind
from lingraft.errors import ArtifactError

RESULT_FILE = "result.json"


class Result(pydantic.BaseModel):
    """An immutable record."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class Point(Result):
    """One point of a learning curve; see `lingraft.train.Progress`."""

    step: int
    tokens: int
    flops: float
    elapsed_s: float
    loss: float
    learning_rate: float
    dev_score: float | None = None
    left_out_steps: int = 0


class SeedScores(Result):
    """One score per finetuning seed."""

    by_seed: dict[int, float]

    @property
    def mean(self) -> float:
        return mean(self.by_seed.values())

    @property
    def deviation(self) -> float:
        """Sample standard deviation; not a number for a single seed, since one run says nothing of spread."""
        return stdev(self.by_seed.values()) if len(self.by_seed) > 1 else float("nan")


class TaskScores(Result):
    """Scores on a task's test examples in one language, without training on any in that language."""

    name: str
    metric: str = pydantic.Field(description="The task's official metric, for example 'accuracy' or 'F1'.")
    labels: list[str] = pydantic.Field(description="Empty for question answering.")
    examples: int = pydantic.Field(description="Test examples.")
    truncated: int = pydantic.Field(description="Of these, how many are longer than a block.")
    baseline: float = pydantic.Field(description="What the best trivial answer scores, such as the majority class.")
    score: SeedScores
    others: dict[str, SeedScores] = pydantic.Field({}, description="Further metrics, such as exact match.")
    initial: SeedScores | None = pydantic.Field(None, description="The same with embeddings before any training.")
    confusion: list[list[int]] = pydantic.Field([], description="True x predicted, over all seeds; classes only.")


class MaskedScores(Result):
    """Accuracy on masked tokens of the test split, always at 15%."""

    mini: float = pydantic.Field(description="Head of the mini-model on which the embeddings were learned.")
    primary: float = pydantic.Field(description="Last head of the primary with the embeddings swapped in.")
    mini_initial: float
    primary_initial: float


class SourceResult(Result):
    """The source language: masked accuracy of every head, and the finetuned task."""

    language: str
    primary: str = pydantic.Field(description="Fingerprint.")
    layers: int
    vocabulary: int
    masked_by_depth: dict[int, float]
    tasks: tuple[TaskScores, ...]
    pretraining: Cost
    finetuning: dict[str, Cost] = pydantic.Field(description="By task, all seeds together.")
    pretraining_history: list[Point]
    finetuning_history: dict[str, dict[int, list[Point]]] = pydantic.Field(description="By task and seed.")
    precision: str

    @property
    def task_scores(self) -> dict[str, TaskScores]:
        """By the task's name."""
        return {task.name: task for task in self.tasks}


class LanguageResult(Result):
    """One language adapted over one depth."""

    language: str
    primary: str = pydantic.Field(description="Fingerprint of the primary it belongs to.")
    embeddings: str = pydantic.Field(description="Fingerprint.")
    system: str = pydantic.Field(description="One of `lingraft.systems.System`.")
    depth: int = pydantic.Field(description="Layers of the primary that the mini-model has.")
    fresh_layers: int = pydantic.Field(0, description="Layers on top of these that step 1b built (MINIPOST).")
    layers: int = pydantic.Field(description="Layers of the primary; depth = layers is standard adaptation.")
    vocabulary: int
    overlap: int = pydantic.Field(description="Pieces that the source vocabulary also has, special tokens included.")
    masked: MaskedScores
    tasks: tuple[TaskScores, ...] = pydantic.Field(description="Those that have test examples in the language.")
    cost: Cost
    building: Cost | None = pydantic.Field(None, description="What step 1b took, once for all languages.")
    whole_flops: float = pydantic.Field(description="What as many updates over all layers would have cost (A3).")
    history: list[Point]
    precision: str

    @property
    def standard(self) -> bool:
        """True for standard adaptation, over all layers."""
        return self.depth == self.layers

    @property
    def task_scores(self) -> dict[str, TaskScores]:
        """By the task's name."""
        return {task.name: task for task in self.tasks}


class Trial(Result):
    """One depth tried by the search."""

    depth: int
    steps: int
    flops: float
    elapsed_s: float
    score: float = pydantic.Field(description="Masked accuracy on the dev split, of the primary with the rows learned.")
    pruned: bool
    scores_by_flops: list[tuple[float, float]] = pydantic.Field(description="Intermediate scores, by FLOPs spent.")


class SearchResult(Result):
    """What the depth search chose for a language, and why."""

    language: str
    primary: str
    chosen: int
    trials: list[Trial]


def save(result: Result, kind: Kind, out: Path, **facts: Any) -> Artifact:
    """Write a result as an artifact.

    Raises:
        ArtifactError: `out` cannot be written.
    """
    of = {LanguageResult: "language", SourceResult: "source", SearchResult: "search"}[type(result)]
    with artifact.create(out, kind) as draft:
        (draft.folder / RESULT_FILE).write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
        draft.facts = facts | {"details": {"of": of}}
    return Artifact.load(out, kind)


def load_source(folder: Path) -> SourceResult:
    """Open the evaluation of a source.

    Raises:
        ArtifactError: not an evaluation of a source, or damaged.
    """
    return SourceResult.model_validate_json(_text(folder, Kind.EVALUATION, "source"))


def load_language(folder: Path) -> LanguageResult:
    """Open the evaluation of an adapted language.

    Raises:
        ArtifactError: not an evaluation of a language, or damaged.
    """
    return LanguageResult.model_validate_json(_text(folder, Kind.EVALUATION, "language"))


def load_search(folder: Path) -> SearchResult:
    """Open the result of a depth search.

    Raises:
        ArtifactError: not a search, or damaged.
    """
    return SearchResult.model_validate_json(_text(folder, Kind.SEARCH, "search"))


def _text(folder: Path, kind: Kind, of: str) -> str:
    found = Artifact.load(folder, kind)
    actual = found.manifest.details.get("of")
    if actual != of:
        raise ArtifactError(
            f"{folder} holds the evaluation of a {actual}, but that of a {of} is needed here. Give its folder."
        )
    return (folder / RESULT_FILE).read_text(encoding="utf-8")

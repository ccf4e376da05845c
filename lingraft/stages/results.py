"""Results of evaluations and searches as files, which reports, registry and checks read. Scores are shares, 0 to 1."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import pydantic

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, require_aligned
from lingraft.artifacts.manifest import Cost, Kind
from lingraft.errors import ArtifactError
from lingraft.model.initialisation.alignment_quality import AlignmentQuality
from lingraft.tasks import item_counts
from lingraft.tasks.item_counts import ItemCounts
from lingraft.training.schedule import TrainingMetrics

if TYPE_CHECKING:
    from torch import Tensor

RESULT_FILE = "result.json"
ITEMS_FILE = "items.safetensors"
"""File of the counts that the scores of a language are made of, item by item; no text."""
MASKED, MASKED_INITIAL = "masked", "masked-initial"
"""Tallies of the primary over test blocks, with the embeddings as learned and as initialised."""
ALIGNMENT, ALIGNMENT_INITIAL = "alignment", "alignment-initial"
"""Tallies over pairs: in how many of two directions a counterpart was found after the top layer."""

WITHIN = "within_language"
"""Beginning of the names of scores among a language's own passages, where the source's are searched, too."""
BM25, SOURCE_TOKENIZER = "BM25", "source_tokenizer"
"""Baselines of retrieval: ranking by shared pieces; and the source's own embeddings with its own tokenizer."""


class Result(pydantic.BaseModel):
    """An immutable record."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


Point = Annotated[TrainingMetrics, pydantic.PlainSerializer(TrainingMetrics._asdict)]
"""One point of a learning curve, in JSON an object."""


class SeedScores(Result):
    """One score per finetuning seed."""

    by_seed: dict[int, float]

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
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
    truncated_passages: int = pydantic.Field(
        0, description="Passages that queries are looked for among, of kind 'retrieval', that are longer than a block."
    )
    baseline: float = pydantic.Field(
        description="What the best trivial answer scores, such as the most frequent class."
    )
    score: SeedScores
    others: dict[str, SeedScores] = pydantic.Field({}, description="Further metrics, such as exact match.")
    initial: SeedScores | None = pydantic.Field(None, description="The same with embeddings before any training.")
    initial_others: dict[str, SeedScores] = pydantic.Field({}, description="Further metrics before any training.")
    baselines: dict[str, SeedScores] = pydantic.Field(
        {}, description="Official metric of further systems on the same examples, such as BM25 for retrieval, by name."
    )
    baseline_others: dict[str, dict[str, SeedScores]] = pydantic.Field(
        {}, description="Further metrics of these systems, by name."
    )
    confusion: list[list[int]] = pydantic.Field([], description="True x predicted, over all seeds; classes only.")


def metric_label(name: str) -> str:
    """Return the name of a metric or baseline in words, such as "macro F1" for macro_F1."""
    return name.replace("_", " ")


class MaskedScores(Result):
    """Accuracy on masked tokens of the test split, always at 15%."""

    mini: float = pydantic.Field(description="Head of the mini-model on which the embeddings were learned.")
    primary: float = pydantic.Field(
        description="Last head of the primary with the embeddings swapped in; the mini-model's if the primary has none."
    )
    mini_initial: float
    primary_initial: float


class RetrievalScores(Result):
    """Finding each row's counterpart in the other language by cosine, each language's hidden states centred."""

    to_source: float = pydantic.Field(description="Accuracy@1 from the language to the source.")
    from_source: float = pydantic.Field(description="Accuracy@1 from the source to the language.")
    mutual_cosine: float = pydantic.Field(description="Mean cosine of pairs that are each other's nearest.")

    @property
    def accuracy(self) -> float:
        """Mean of both directions."""
        return (self.to_source + self.from_source) / 2


class AlignmentBasis(StrEnum):
    """Kind of the pairs that alignment is measured over."""

    LINES = "lines"
    """Mean hidden states of lines of the recipe's parallel text that nothing was learned from."""
    PARALLEL = "parallel"
    """Mean hidden states of paragraphs of documents that are translations of each other."""
    PIECES = "pieces"
    """Mean hidden states of the contexts of pieces that both languages have, the piece itself masked."""

    @property
    def label(self) -> str:
        """Words for people."""
        return _BASIS_LABELS[self]


_BASIS_LABELS = {
    AlignmentBasis.LINES: "held-out lines of parallel text",
    AlignmentBasis.PARALLEL: "parallel paragraphs",
    AlignmentBasis.PIECES: "shared pieces' contexts",
}


class AlignmentScores(Result):
    """Nearness of the language's hidden states in the primary to the source's; needs no labels."""

    basis: AlignmentBasis
    pairs: int = pydantic.Field(description="Each is looked for among all; 1/pairs is chance.")
    bottom_layer: int
    top_layer: int
    bottom: RetrievalScores = pydantic.Field(description="With the embeddings learned, after the bottom layer.")
    top: RetrievalScores = pydantic.Field(description="The same after the top layer.")
    bottom_initial: RetrievalScores = pydantic.Field(description="With the embeddings as initialised.")
    top_initial: RetrievalScores

    @property
    def metrics(self) -> dict[str, float]:
        """Accuracy@1 and mean cosine of mutual pairs by name, for tracking."""
        found: dict[str, float] = {"alignment_pairs": self.pairs}
        for name in ("bottom", "top", "bottom_initial", "top_initial"):
            retrieval: RetrievalScores = getattr(self, name)
            found |= {
                f"alignment_{name}": retrieval.accuracy,
                f"alignment_{name}_mutual_cosine": retrieval.mutual_cosine,
            }
        return found


class Neighbour(Result):
    """A piece of the source, and the cosine of its row with a word's."""

    piece: str
    cosine: float


class NearestWords(Result):
    """A word of a language and the nearest pieces of the source, the nearest first."""

    word: str
    shared: bool = pydantic.Field(description="A name or number that the source's vocabulary has, too.")
    before: tuple[Neighbour, ...] = pydantic.Field(description="As initialised.")
    after: tuple[Neighbour, ...] = pydantic.Field(description="As learned.")


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
        """Scores by the task's name."""
        return {task.name: task for task in self.tasks}


class LanguageResult(Result):
    """One language adapted over one depth."""

    language: str
    primary: str = pydantic.Field(description="Fingerprint of the primary it belongs to.")
    embeddings: str = pydantic.Field(description="Fingerprint.")
    system: str = pydantic.Field(description="One of `lingraft.config.systems.System`.")
    depth: int = pydantic.Field(description="Layers of the primary that the mini-model has.")
    fresh_layers: int = pydantic.Field(0, description="Layers on top of these that step 1b built (MINIPOST).")
    learned_over: int = pydantic.Field(
        description="Layers of the primary that learning ran through; sentence pairs may be learned above them all."
    )
    layers: int = pydantic.Field(description="Layers of the primary; depth = layers is standard adaptation.")
    vocabulary: int
    overlap: int = pydantic.Field(description="Pieces that the source vocabulary also has, special tokens included.")
    masked: MaskedScores | None = pydantic.Field(
        None, description="Absent where neither the primary nor a mini-model has an MLM head."
    )
    alignment: AlignmentScores | None = pydantic.Field(
        None, description="Absent where the source's side was not given, or there is too little to pair."
    )
    initial_alignment: AlignmentQuality | None = pydantic.Field(
        None, description="Of the alignment that the initial rows come from; absent for other initialisations."
    )
    nearest_words: tuple[NearestWords, ...] = pydantic.Field(
        (), description="Frequent words, then shared names and numbers; empty where the blocks have none."
    )
    tasks: tuple[TaskScores, ...] = pydantic.Field(description="Those that have test examples in the language.")
    cost: Cost
    building: Cost | None = pydantic.Field(None, description="What step 1b took, once for all languages.")
    whole_flops: float = pydantic.Field(description="What as many updates over all layers would have cost (A3).")
    history: list[Point]
    precision: str

    @property
    def masked_scores(self) -> dict[str, float]:
        """Masked accuracy by name; empty where there is no MLM head."""
        return self.masked.model_dump() if self.masked else {}

    @property
    def standard(self) -> bool:
        """True for standard adaptation, over all layers."""
        return self.depth == self.layers

    @property
    def alignment_metrics(self) -> dict[str, float]:
        """Alignment of hidden states and of the initial rows by name, for tracking; those that there are."""
        return {
            **(self.alignment.metrics if self.alignment else {}),
            **(self.initial_alignment.metrics if self.initial_alignment else {}),
        }

    @property
    def task_scores(self) -> dict[str, TaskScores]:
        """Scores by the task's name."""
        return {task.name: task for task in self.tasks}


class Trial(Result):
    """One trial of a search."""

    depth: int
    steps: int
    flops: float
    elapsed_s: float
    score: float = pydantic.Field(description="The search's metric on the dev split, of the primary with the rows.")
    pruned: bool
    scores_by_flops: list[tuple[float, float]] = pydantic.Field(description="Intermediate scores, by FLOPs spent.")
    number: int = pydantic.Field(0, description="In the study.")
    whole_flops: float | None = pydantic.Field(None, description="Run to its end.")


class SearchResult(Result):
    """Depth that the search chose for a language, and why."""

    language: str
    primary: str
    chosen: int
    trials: list[Trial]
    metric: str = pydantic.Field("masked", description="Of all scores; one of `lingraft.config.search.Metric`.")
    building: dict[int, Cost] = pydantic.Field({}, description="Step 1b by depth, once for all languages (MINIPOST).")
    budget_flops: float | None = pydantic.Field(None, description="Of a whole trial.")
    failures: dict[str, str] = pydantic.Field({}, description="Trials that could not be trained, and why.")

    @property
    def reason(self) -> str:
        """Why the depth was chosen, for people."""
        best = next(trial for trial in self.trials if trial.depth == self.chosen)
        return f"Its trial has the best score of those that used the whole budget, {best.score:.2%} on dev"

    @property
    def metric_title(self) -> str:
        """Name of the metric, for people."""
        return {"masked": "masked tokens found", "alignment": "counterparts in the source language found"}[self.metric]

    @property
    def flops(self) -> float:
        """FLOPs of the whole search: each trial's updates once, and every step 1b."""
        return sum(trial.flops for trial in self.trials) + sum(cost.flops for cost in self.building.values())

    @property
    def grid_flops(self) -> float:
        """FLOPs if every trial had run to its end."""
        whole = sum(trial.whole_flops or trial.flops for trial in self.trials)
        return whole + sum(cost.flops for cost in self.building.values())


def task_item(task: str, seed: int) -> str:
    """Return the name of the tally over a task's test examples."""
    return f"task/{task}/{seed}"


def save(
    result: SourceResult | LanguageResult | SearchResult,
    out: Path,
    facts: Mapping[str, Any],
    items: Mapping[str, ItemCounts] | None = None,
    parts: "Mapping[str, Mapping[str, Tensor]] | None" = None,
    files: Mapping[str, bytes] | None = None,
) -> Artifact:
    """Write a result as an artifact.

    `items` are tallies, `parts` tensors by part and name.

    Raises:
        ArtifactError: `out` cannot be written.
    """
    kind, of = _KINDS[type(result)]
    with artifact.create(out, kind) as draft:
        (draft.folder / RESULT_FILE).write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
        for name, content in (files or {}).items():
            (draft.folder / name).write_bytes(content)
        if items:
            item_counts.save(items, draft.folder / ITEMS_FILE)
        for name, tensors in (parts or {}).items():
            draft.tensors(name, tensors)
        draft.facts = {**facts, "details": {"of": of}}
    return Artifact.load(out, kind)


_KINDS: dict[type[Result], tuple[Kind, str]] = {
    SourceResult: (Kind.EVALUATION, "source"),
    LanguageResult: (Kind.EVALUATION, "language"),
    SearchResult: (Kind.SEARCH, "search"),
}
"""Kind of the artifact that holds a result, and what its manifest calls the result."""
AnyResult = TypeVar("AnyResult", SourceResult, LanguageResult, SearchResult)


def load_source(folder: Path) -> SourceResult:
    """Open the evaluation of a source.

    Raises:
        ArtifactError: not an evaluation of a source, or damaged.
    """
    return _load(folder, SourceResult)


def load_language(folder: Path) -> LanguageResult:
    """Open the evaluation of an adapted language.

    Raises:
        ArtifactError: not an evaluation of a language, or damaged.
    """
    return _load(folder, LanguageResult)


def load_search(folder: Path) -> SearchResult:
    """Open the result of a depth search.

    Raises:
        ArtifactError: not a search, or damaged.
    """
    return _load(folder, SearchResult)


def load_items(folder: Path) -> dict[str, ItemCounts]:
    """Open the counts that the scores of an adapted language are made of, by name; `task_item` names those of tasks.

    Raises:
        ArtifactError: not an evaluation of a language, damaged, or of a lingraft that kept none.
    """
    require_result(folder, LanguageResult)
    return item_counts.load(folder / ITEMS_FILE)


def require_result(folder: Path, model: type[Result]) -> Artifact:
    """Open the artifact of a result of one kind.

    Raises:
        ArtifactError: not such a result, or damaged.
    """
    kind, of = _KINDS[model]
    found = Artifact.load(folder, kind)
    actual = found.manifest.details.get("of")
    if actual != of:
        raise ArtifactError(
            f"{folder} holds the evaluation of a {actual}, but that of a {of} is needed here. Give its folder."
        )
    return found


def require_source(evaluation: Path, source_fingerprint: str) -> Artifact:
    """Open the artifact of a source's evaluation, whose tensors are kept for languages.

    Args:
        evaluation: folder of the evaluation.
        source_fingerprint: fingerprint of the primary that languages are learned for.

    Raises:
        ArtifactError: not an evaluation of a source, or damaged.
        AlignmentError: it is of another primary.
    """
    found = require_result(evaluation, SourceResult)
    again = "Evaluate the source again (`lingraft evaluate-source`)"
    require_aligned(f"the evaluation {evaluation}", found.manifest.aligned_with, source_fingerprint, again)
    return found


def _load(folder: Path, model: type[AnyResult]) -> AnyResult:
    found = require_result(folder, model)
    return model.model_validate_json((found.folder / RESULT_FILE).read_text(encoding="utf-8"))


def zero_shot(result: LanguageResult) -> dict[str, float]:
    """Return every task's scores as learned and as initialised, and its baselines: means over seeds, by name."""
    scores = {}
    for task in result.tasks:
        name = f"zero_shot_{task.name}"
        scores[name] = task.score.mean
        if task.initial:
            scores[f"{name}_initial"] = task.initial.mean
        scores |= {f"{name}_{metric}": found.mean for metric, found in task.others.items()}
        scores |= {f"{name}_{system}": found.mean for system, found in task.baselines.items()}
    return scores

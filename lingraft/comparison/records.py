"""Results of the comparison's evaluations, and their merge into the records that tables and figures are drawn from."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pydantic
from pydantic import Field

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.failures import FAILED_FILE, failure_reason
from lingraft.artifacts.manifest import MANIFEST, Kind
from lingraft.comparison.plan import MASKED, Comparison
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task, TaskKindName
from lingraft.errors import ArtifactError
from lingraft.reports.paper.published import DISTANCES, SCORES
from lingraft.reports.paper.records import Cell, LanguageFacts, PaperRecords, SourceCell, TaskFacts
from lingraft.stages.results import ITEMS_FILE, RESULT_FILE, Result
from lingraft.tasks import item_counts
from lingraft.tasks.item_counts import ItemCounts
from lingraft.tasks.kinds import kind_of

if TYPE_CHECKING:
    from torch import Tensor

_OF = "comparison"
_DISTANCES_FROM = "en"
_TRIVIAL: dict[TaskKindName, str] = {
    "documents": "most frequent class",
    "texts": "most frequent class",
    "pairs": "most frequent class",
    "questions": "whole context, or its first sentence",
    "tags": "one tag for every word",
    "retrieval": "most frequent passage",
}
"""Name of the trivial answer of `EvalResult.baselines` by kind of task, as a table shows it."""


class EvalResult(Result):
    """Evaluation of one language in one arm, or of the source language in one primary."""

    language: str = Field("", description="Empty if there is nothing but what was lost.")
    cells: tuple[Cell, ...] = ()
    source_cells: tuple[SourceCell, ...] = ()
    baselines: dict[str, float] = Field({}, description="Task to the score of its trivial answer in the language.")
    lost: tuple[str, ...] = Field((), description="Why finetuning seeds, or all scores, are missing.")
    text_bytes: int | None = Field(None, description="Of the language's training text.")
    machine: str = Field("", description="Where it was judged, and trained.")

    @property
    def is_complete(self) -> bool:
        """Whether nothing failed."""
        return not self.lost and not any(
            [cell.failed for cell in self.cells] + [one.failed for one in self.source_cells]
        )


def eval_item(task: str, seed: int) -> str:
    """Return the name of the counts of a task's test examples."""
    return f"{task}/{seed}"


def save_eval_result(
    judged: EvalResult,
    out: Path,
    items: Mapping[str, ItemCounts] | None = None,
    parts: "Mapping[str, Mapping[str, Tensor]] | None" = None,
) -> Artifact:
    """Write an evaluation as an artifact, with counts by item, and tensors by part and name, beside it.

    Raises:
        ArtifactError: `out` cannot be written.
    """
    with artifact.create(out, Kind.EVALUATION) as draft:
        (draft.folder / RESULT_FILE).write_text(judged.model_dump_json(indent=2) + "\n", encoding="utf-8")
        if items:
            item_counts.save(items, draft.folder / ITEMS_FILE)
        for name, tensors in (parts or {}).items():
            draft.tensors(name, tensors)
        draft.facts = {"language": judged.language, "details": {"of": _OF}}
    return Artifact.load(out, Kind.EVALUATION)


def load_eval_result(folder: Path) -> EvalResult:
    """Load an evaluation, or the reason why there is none.

    Raises:
        ArtifactError: not such an evaluation, or damaged.
    """
    if reason := failure_reason(folder):
        return EvalResult(lost=(reason,))
    found = Artifact.load(folder, Kind.EVALUATION)
    if found.manifest.details.get("of") != _OF:
        raise ArtifactError(f"{folder} is an evaluation, but not of the paper's comparison. Give the folder of one.")
    try:
        return EvalResult.model_validate_json((folder / RESULT_FILE).read_text(encoding="utf-8"))
    except pydantic.ValidationError as error:
        raise ArtifactError(f"{folder / RESULT_FILE} is damaged: {error}. Judge again.") from error


def load_eval_results(folder: Path) -> list[EvalResult]:
    """Load all evaluations within a folder, failed ones included.

    Raises:
        ArtifactError: something else lies there too, or something is damaged.
    """
    found = {path.parent for name in (MANIFEST, FAILED_FILE) for path in folder.rglob(name)}
    return [load_eval_result(each) for each in sorted(found)]


def final_scores(judged: EvalResult) -> dict[str, float]:
    """Return means over finetuning seeds at the end of training, by task, and for a source by layers too."""
    cells = {cell.task: cell.points[-1].scores for cell in judged.cells if cell.failed is None}
    source = {f"{cell.task}-{cell.depth}-layers": cell.scores for cell in judged.source_cells if cell.scores}
    return {name: scores.mean for name, scores in {**cells, **source}.items()}


def merge_records(comparison: Comparison, judged: Iterable[EvalResult]) -> PaperRecords:
    """Merge all evaluations so far into one record; planned scores without an evaluation are missing there."""
    found = [*judged]
    recipe = comparison.recipe
    text_bytes = {one.language: one.text_bytes for one in found if one.text_bytes is not None}
    return PaperRecords(
        title=recipe.name,
        source=recipe.source.language,
        layers=recipe.encoder.layers,
        depth=recipe.adaptation.depth,
        pretraining_seed=comparison.arms[0].seed,
        systems=tuple(dict.fromkeys(arm.system for arm in comparison.arms)),
        tasks=(*(_task_facts(comparison, task, found) for task in recipe.tasks), _masked_facts(comparison, found)),
        languages=tuple(_language_facts(comparison, name, text_bytes.get(name)) for name in recipe.languages),
        cells=tuple(cell for one in found for cell in one.cells),
        source_cells=tuple(cell for one in found for cell in one.source_cells),
        machine="; ".join(dict.fromkeys(one.machine for one in found if one.machine)),
        notes=(*_notes(comparison), *dict.fromkeys(f"Missing: {reason}" for one in found for reason in one.lost)),
    )


class MissingCells(NamedTuple):
    """Numbers of cells in a comparison's tables, those of the source language included."""

    planned: int
    missing: int
    """Number of cells without a score."""
    short: int
    """Number of cells whose score lacks a finetuning seed."""


def count_missing(comparison: Comparison, records: PaperRecords) -> MissingCells:
    """Count the planned cells that the records lack."""
    planned = sum(_score_count(arm.recipe, language) for arm in comparison.arms for language in arm.recipe.targets)
    planned += sum(
        len(one.systems_over(layers)) * _score_count(one.recipe, one.recipe.source.language)
        for one in comparison.primaries
        for layers in one.task_layers
    )
    seeds = {task.name: len(task.finetuning.seeds) for task in comparison.recipe.tasks} | {MASKED: 1}
    found = [(cell.task, cell.points[-1].scores) for cell in records.cells if cell.failed is None]
    found += [(cell.task, cell.scores) for cell in records.source_cells if cell.scores]
    short = sum(len(scores.by_seed) < seeds[task] for task, scores in found)
    return MissingCells(planned, planned - len(found), short)


def _score_count(recipe: Recipe, language: str) -> int:
    """Number of tasks that one model is evaluated on in a language, masked tokens included."""
    return 1 + sum(task.covers(language) for task in recipe.tasks)


def _task_facts(comparison: Comparison, task: Task, judged: Sequence[EvalResult]) -> TaskFacts:
    printed = SCORES.get(task.name)
    return TaskFacts(
        name=task.name,
        title=printed.title if printed else task.name,
        metric=kind_of(task).metric,
        languages=tuple(language for language in comparison.recipe.targets if task.covers(language)),
        trivial=_TRIVIAL[task.kind],
        baselines=_baselines(task.name, judged),
        appendix=printed.appendix if printed else False,
    )


def _masked_facts(comparison: Comparison, judged: Sequence[EvalResult]) -> TaskFacts:
    """Facts of the masked-token task; means over tasks leave it out, since it is not what the method is for."""
    return TaskFacts(
        name=MASKED,
        title="masked tokens",
        metric="accuracy",
        languages=comparison.recipe.targets,
        trivial="most frequent piece",
        baselines=_baselines(MASKED, judged),
        appendix=bool(comparison.recipe.tasks),
    )


def _baselines(task: str, judged: Sequence[EvalResult]) -> dict[str, float]:
    return {one.language: one.baselines[task] for one in judged if task in one.baselines}


def _language_facts(comparison: Comparison, language: str, text_bytes: int | None) -> LanguageFacts:
    known = DISTANCES.get(language) if comparison.recipe.source.language == _DISTANCES_FROM else None
    facts = known._asdict() if known else {}
    return LanguageFacts(language=language, text_bytes=text_bytes, **facts)


def _notes(comparison: Comparison) -> list[str]:
    recipe = comparison.recipe
    stages = {"Pretraining": recipe.pretraining, "step 1b": recipe.mini, "adaptation": recipe.adaptation}
    trained = ", ".join(f"{name} {s.steps:,} updates of {s.batch_blocks:,} blocks" for name, s in stages.items() if s)
    notes = [
        f"{trained}; blocks of {recipe.encoder.block_tokens} tokens, width {recipe.encoder.width}, vocabularies of "
        f"{recipe.tokenizer.vocabulary:,} pieces. The paper: 125,000 updates of 2,048 blocks of 512 tokens, width 768, "
        "50,000 pieces.",
        f"Text: {recipe.text.kind}. Accuracy on masked tokens is of the primary with the language's embeddings, on "
        "the text's test split, always at 15%; its seed is that of pretraining.",
    ]
    if recipe.precision == "bf16":
        notes.append("Trained and judged under bf16 autocast, weights in fp32.")
    return notes

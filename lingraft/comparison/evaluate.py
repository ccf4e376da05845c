"""Evaluation in the comparison: each checkpoint of an adaptation is swapped into each finetuned model (section 2, step
4).

A score that cannot be measured is recorded as missing, with its reason; the other scores are measured all the same.
"""

import json
import platform
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import torch
from typing_extensions import override

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.artifacts.failures import (
    EXPECTED_ERRORS,
    InputFailedError,
    explain_device_errors,
    failure_reason,
    format_error,
    require_inputs_made,
)
from lingraft.comparison.plan import ALIGNMENT, MASKED, Arm, FinetuningRun, PlannedPrimary
from lingraft.comparison.records import EvalResult, save_eval_result
from lingraft.comparison.scorers import (
    EmbeddingsScorer,
    TaskScorer,
    alignment_scorer,
    masked_token_scorer,
    task_scorer,
)
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task
from lingraft.data.blocks import load_blocks, open_split
from lingraft.data.text import load_text
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError
from lingraft.jobs.job import CHECKPOINTS, EMBEDDINGS, Job, LanguageDirs, Watch, unwatched
from lingraft.model.loading import Primary, load_embeddings, load_primary
from lingraft.reports.paper.records import Cell, CurvePoint, SourceCell
from lingraft.stages.alignment_probe import FEWEST_PAIRS, PART, Reference, probe_of, reference_tensors
from lingraft.stages.results import SeedScores
from lingraft.tables import counted
from lingraft.training import masked_lm, precision

Found = TypeVar("Found")


class ScoredCurve(NamedTuple):
    """Scores of an adaptation's checkpoints by one scorer."""

    points: tuple[CurvePoint, ...] = ()
    baseline: float | None = None
    """Score of the trivial answer."""


@dataclass(frozen=True)
class FinetunedModels:
    """Folders of a primary and of the models finetuned from it."""

    planned: PlannedPrimary
    primary: Path
    tasks: Path
    """Folder that has a folder for every finetuning, named by its key."""
    only: str | None = None
    """Name of the one task to evaluate on; None for all tasks and for masked tokens."""

    def restricted_to(self, task: str) -> Self:
        """Return these models restricted to one task, or to masked tokens."""
        return replace(self, only=task)

    def includes(self, task: str) -> bool:
        """Return whether the models are to be evaluated on a task."""
        return self.only in (None, task)

    @property
    def finetunings(self) -> list[FinetuningRun]:
        """Finetunings of the included tasks."""
        return [one for one in self.planned.finetunings if self.includes(one.task)]

    def tasks_in(self, language: str) -> list[Task]:
        """Return the included tasks that have examples in a language."""
        return [task for task in self.planned.recipe.tasks if self.includes(task.name) and task.covers(language)]

    def output_dir(self, folder: Path) -> Path:
        """Return the folder for results, within a folder: one of its own for a single task."""
        return folder / self.only if self.only else folder

    def load(self) -> Primary:
        """Load the primary.

        Raises:
            RecipeError: it has not the shape that is planned.
            ArtifactError: it is damaged.
        """
        return load_primary(self.primary, self.planned.recipe.primary_shape)

    def available_folders(self, task: str, layers: int) -> list[Path]:
        """Return the folders of a task's finetunings that succeeded, one a seed.

        Raises:
            InputFailedError: none was.
        """
        wanted = [one for one in self.finetunings if (one.task, one.layers) == (task, layers)]
        reasons = [self._missing_reason(one) for one in wanted]
        if all(reasons):
            raise InputFailedError(str(reasons[0]))
        return [one.path_in(self.tasks) for one, reason in zip(wanted, reasons, strict=True) if reason is None]

    def lost(self) -> tuple[str, ...]:
        """Return the reasons of missing finetunings."""
        return tuple(reason for one in self.finetunings if (reason := self._missing_reason(one)))

    def inputs(self) -> dict[str, Path]:
        """Return all folders by name."""
        finetuned = {f"finetuning {one.key}": one.path_in(self.tasks) for one in self.finetunings}
        return {"primary": self.primary, **finetuned}

    def _missing_reason(self, wanted: FinetuningRun) -> str | None:
        folder = wanted.path_in(self.tasks)
        return failure_reason(folder) or (None if folder.is_dir() else f"the finetuning {wanted.key} is not there")


def evaluate_language(
    arm: Arm,
    models: FinetunedModels,
    target: LanguageDirs,
    curve: Path,
    language: str,
    reference: Path | None = None,
) -> EvalResult:
    """Evaluate the learning curves of one language in one arm: on masked tokens and on each task that covers the
    language.

    Alignment is evaluated only for models restricted to it (`FinetunedModels.restricted_to`).

    Args:
        arm: arm that adapted the language.
        models: finetuned models of the arm's primary.
        target: folders of the language's text, tokenizer and blocks.
        curve: folder of the adaptation, with its checkpoints.
        language: tag of the language.
        reference: from `ReferenceJob`, of the same primary; alignment is measured with it.
    """
    inputs = (*target, *([reference] if reference else ()), models.primary, curve / EMBEDDINGS)
    layers = models.planned.layers
    measures: dict[str, Callable[[], EmbeddingsScorer]] = {}
    if models.includes(MASKED):
        measures[MASKED] = partial(_masked_scorer, arm, models, target, language)
    if reference and models.only == ALIGNMENT:
        measures[ALIGNMENT] = partial(
            _language_alignment_scorer, arm=arm, models=models, reference=reference, target=target, language=language
        )
    for covered in models.tasks_in(language):
        measures[covered.name] = partial(
            _language_task_scorer, task=covered, models=models, layers=layers, folders=target, language=language
        )
    cells = []
    baselines: dict[str, float] = {}
    for task, begin in measures.items():
        title = f"judging of {task!r} in {language!r}: {arm.title}"
        with _evaluation_precision(arm.recipe):
            found, failed = _result_or_reason(title, inputs, partial(_score_checkpoints, begin, curve / CHECKPOINTS))
        curve_found = found or ScoredCurve()
        cells.append(
            Cell(
                system=arm.system,
                depth=arm.depth,
                language=language,
                task=task,
                pretraining_seed=arm.seed,
                points=curve_found.points,
                failed=failed,
            )
        )
        baselines |= {} if curve_found.baseline is None else {task: curve_found.baseline}
    return EvalResult(
        language=language,
        cells=tuple(cells),
        baselines=baselines,
        lost=models.lost(),
        text_bytes=_text_bytes_or_none(target.text, language) if models.includes(MASKED) else None,
        machine=device_name(),
    )


def evaluate_source(models: FinetunedModels, source: LanguageDirs) -> EvalResult:
    """Evaluate a primary, and the mini-model finetuned beside it, in the source language (table 5)."""
    planned = models.planned
    recipe = models.planned.recipe
    language = recipe.source
    seed = recipe.pretraining.seed
    cells = []
    for layers in planned.task_layers:
        scores: dict[str, Callable[[], SeedScores]] = {}
        if models.includes(MASKED):
            scores[MASKED] = partial(_masked_in_source, models, source, layers)
        for covered in models.tasks_in(language):
            scores[covered.name] = partial(_task_in_source, covered, models, layers, source)
        for task, score in scores.items():
            title = f"judging of {task!r} in {language!r}: {planned.title}, {layers} layers"
            with _evaluation_precision(recipe):
                found, failed = _result_or_reason(title, (*source, models.primary), score)
            cells += [
                SourceCell(system=system, depth=layers, task=task, pretraining_seed=seed, scores=found, failed=failed)
                for system in planned.systems_over(layers)
            ]
    text_bytes = _text_bytes_or_none(source.text, language) if models.includes(MASKED) else None
    return EvalResult(language=language, source_cells=tuple(cells), lost=models.lost(), text_bytes=text_bytes)


class ArmEvaluation(Job, frozen=True):
    """`evaluate_language` as a job; it has a result even if all of its inputs failed."""

    kind = Kind.EVALUATION
    bears_failed_inputs = True
    arm: Arm
    models: FinetunedModels
    target: LanguageDirs
    curve: Path
    language: str
    reference: Path | None = None

    @property
    @override
    def inputs(self) -> dict[str, Path]:
        reference = {"reference": self.reference} if self.reference else {}
        return self.target._asdict() | self.models.inputs() | {"embeddings": self.curve / EMBEDDINGS} | reference

    @property
    @override
    def settings(self) -> dict[str, Any]:
        return _evaluation_settings(self.recipe, self.models.tasks_in(self.language))

    @property
    @override
    def work(self) -> float:
        passes = _relative_work(self.models, self.models.tasks_in(self.language))
        return self.models.planned.layers * len(self.recipe.adaptation.checkpoint_steps) * passes

    @override
    def make(self, watch: Watch = unwatched) -> Artifact:
        found = evaluate_language(
            arm=self.arm,
            models=self.models,
            target=self.target,
            curve=self.curve,
            language=self.language,
            reference=self.reference,
        )
        return save_eval_result(found, self.out)


class PrimaryEvaluation(Job, frozen=True):
    """`evaluate_source` as a job; it has a result even if all of its inputs failed."""

    kind = Kind.EVALUATION
    bears_failed_inputs = True
    models: FinetunedModels
    source: LanguageDirs

    @property
    @override
    def inputs(self) -> dict[str, Path]:
        return self.source._asdict() | self.models.inputs()

    @property
    @override
    def settings(self) -> dict[str, Any]:
        planned = self.models.planned
        tasks = self.models.tasks_in(self.recipe.source)
        return _evaluation_settings(self.recipe, tasks) | {"systems": planned.systems_over(planned.layers)}

    @property
    @override
    def work(self) -> float:
        return self.models.planned.layers * _relative_work(self.models, self.models.tasks_in(self.recipe.source))

    @override
    def make(self, watch: Watch = unwatched) -> Artifact:
        return save_eval_result(evaluate_source(self.models, self.source), self.out)


class ReferenceJob(Job, frozen=True):
    """Hidden states of the source language, which alignment compares languages with: one job for all arms of a
    primary.
    """

    kind = Kind.EVALUATION
    models: FinetunedModels
    source: LanguageDirs

    @property
    @override
    def inputs(self) -> dict[str, Path]:
        return self.source._asdict() | {"primary": self.models.primary}

    @property
    @override
    def settings(self) -> dict[str, Any]:
        return {"precision": self.recipe.precision}

    @property
    @override
    def work(self) -> float:
        return float(self.models.planned.layers)

    @override
    def make(self, watch: Watch = unwatched) -> Artifact:
        primary, language = self.models.load(), self.recipe.source
        text = load_text(self.source.text, language)
        blocks = load_blocks(self.source.blocks, primary.tokenizer, self.recipe.encoder.block_tokens)
        with _evaluation_precision(self.recipe):
            tensors = reference_tensors(primary, text, blocks, (self.models.planned.layers,), ("test",))
        return save_eval_result(EvalResult(language=language), self.out, {PART: tensors})


def language_evaluation(
    arm: Arm,
    models: FinetunedModels,
    target: LanguageDirs,
    curve: Path,
    language: str,
    out: Path,
    reference: Path | None = None,
) -> Job:
    """Return the job that evaluates a language in an arm, as `evaluate_language` describes it."""
    return ArmEvaluation(
        recipe=arm.recipe,
        arm=arm,
        models=models,
        target=target,
        curve=curve,
        language=language,
        reference=reference,
        out=models.output_dir(out),
        own_name=f"judge-{language}-{arm.name}",
        own_title=f"judging of {language!r}{_task_suffix(models)}: {arm.title}",
        records_failure=True,
    )


def source_evaluation(models: FinetunedModels, source: LanguageDirs, out: Path) -> Job:
    """Return the job that evaluates a primary in the source language."""
    planned = models.planned
    return PrimaryEvaluation(
        recipe=planned.recipe,
        models=models,
        source=source,
        out=models.output_dir(out),
        own_name=f"judge-source-{planned.name}",
        own_title=f"judging of the source language{_task_suffix(models)}: {planned.title}",
        records_failure=True,
    )


def alignment_reference(models: FinetunedModels, source: LanguageDirs, out: Path) -> Job:
    """Return the job that computes what a primary's languages are compared with, of models restricted to alignment."""
    planned = models.planned
    return ReferenceJob(
        recipe=planned.recipe,
        models=models,
        source=source,
        out=models.output_dir(out),
        own_name=f"reference-{planned.name}",
        own_title=f"hidden states of the source language: {planned.title}",
        records_failure=True,
    )


def _task_suffix(models: FinetunedModels) -> str:
    return f" on {models.only!r}" if models.only else ""


def _relative_work(models: FinetunedModels, tasks: Sequence[Task]) -> int:
    """Number of passes of a model over a language's examples; masked tokens need no finetuning, hence one seed."""
    return models.includes(MASKED) + sum(len(task.finetuning.seeds) for task in tasks)


def _evaluation_settings(recipe: Recipe, tasks: Sequence[Task]) -> dict[str, Any]:
    asked = {task.name: task.model_dump(mode="json", include={"kind", "labels", "test"}) for task in tasks}
    return {"precision": recipe.precision, "tasks": asked}


def _evaluation_precision(recipe: Recipe) -> AbstractContextManager[object]:
    """Context for evaluation in bf16 where the recipe asks for it; `auto` could choose differently in each training."""
    return precision.autocast("bf16" if recipe.precision == "bf16" else "fp32")()


def _result_or_reason(
    title: str, inputs: Sequence[Path], work: Callable[[], Found]
) -> tuple[Found, None] | tuple[None, str]:
    """Return the result of some work, or the reason why it has none."""
    try:
        require_inputs_made(inputs)
        with explain_device_errors():
            return work(), None
    except InputFailedError as error:
        return None, str(error)
    except EXPECTED_ERRORS as error:
        return None, f"{title}: {format_error(error)}"


def _score_checkpoints(begin: Callable[[], EmbeddingsScorer], checkpoints: Path) -> ScoredCurve:
    folders = sorted(checkpoints.glob("step-*"))
    if not folders:
        raise ArtifactError(f"{checkpoints} holds no checkpoints. Remove the adaptation beside it, and run it again.")
    measure = begin()
    points = []
    baseline = None
    for folder in folders:
        learned = load_embeddings(folder)
        score = measure(learned)
        cost = learned.manifest.cost
        scores = SeedScores(by_seed=score.by_seed)
        points.append(CurvePoint(step=cost.steps, flops=cost.flops, elapsed_s=cost.elapsed_s, scores=scores))
        baseline = score.baseline
    return ScoredCurve(tuple(points), baseline)


def _masked_scorer(arm: Arm, models: FinetunedModels, target: LanguageDirs, language: str) -> EmbeddingsScorer:
    tokenizer = Tokenizer.load(target.tokenizer, language)
    blocks = load_blocks(target.blocks, tokenizer, arm.recipe.encoder.block_tokens)
    return masked_token_scorer(models.load(), blocks, arm.seed)


def _language_alignment_scorer(
    arm: Arm, models: FinetunedModels, reference: Path, target: LanguageDirs, language: str
) -> EmbeddingsScorer:
    primary = models.load()
    tokenizer = Tokenizer.load(target.tokenizer, language)
    evaluated = Artifact.load(reference, Kind.EVALUATION)
    blocks = open_split(load_blocks(target.blocks, tokenizer, arm.recipe.encoder.block_tokens), "test")
    text = load_text(target.text, language)
    probe = probe_of(
        reference=Reference(evaluated.tensors(PART), evaluated.manifest.fingerprint_of(PART)),
        split="test",
        source=primary.tokenizer,
        pieces=tokenizer,
        text=text,
        blocks=blocks,
    )
    if probe is None:
        raise ArtifactError(
            f"alignment of {language!r} cannot be measured: its text and the source's have fewer than {FEWEST_PAIRS} "
            "parallel paragraphs or shared pieces in the test split. Give more text."
        )
    return alignment_scorer(primary, probe, arm.seed)


def _language_task_scorer(
    task: Task, models: FinetunedModels, layers: int, folders: LanguageDirs, language: str
) -> TaskScorer:
    text = load_text(folders.text, language) if task.kind == "documents" else None
    tokenizer = Tokenizer.load(folders.tokenizer, language)
    return task_scorer(task, models.available_folders(task.name, layers), text, tokenizer)


def _masked_in_source(models: FinetunedModels, source: LanguageDirs, layers: int) -> SeedScores:
    primary = models.load()
    recipe = models.planned.recipe
    blocks_NT = open_split(load_blocks(source.blocks, primary.tokenizer, recipe.encoder.block_tokens), "test").all()
    found = masked_lm.accuracy(primary.encoder.to(precision.device()), blocks_NT, (layers,))[layers]
    return SeedScores(by_seed={recipe.pretraining.seed: found})


def _task_in_source(task: Task, models: FinetunedModels, layers: int, source: LanguageDirs) -> SeedScores:
    measure = _language_task_scorer(task, models, layers, source, models.planned.recipe.source)
    return SeedScores(by_seed=measure(models.load()).by_seed)


def _text_bytes_or_none(text: Path, language: str) -> int | None:
    return _result_or_reason(f"counting of text of {language!r}", (text,), partial(_text_bytes, text, language))[0]


def _text_bytes(text: Path, language: str) -> int:
    """Size of the training text in bytes; the text may be larger than memory."""
    with (load_text(text, language).folder / "train.jsonl").open(encoding="utf-8") as lines:
        return sum(len(json.loads(line)["text"].encode()) for line in lines)


def device_name() -> str:
    """Return the name of the device that trains and evaluates, for people."""
    if precision.device().type == "cuda":
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{[*named, platform.machine()][0]}, {counted(torch.get_num_threads(), 'thread')}"

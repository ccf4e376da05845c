"""Evaluation in the comparison: each checkpoint of an adaptation is swapped into each finetuned model.

A score that cannot be measured is recorded as missing, with its reason; the other scores are measured all the same.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from typing_extensions import override

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.failures import (
    EXPECTED_ERRORS,
    InputFailedError,
    explain_device_errors,
    format_error,
    require_inputs_made,
)
from lingraft.artifacts.manifest import Kind
from lingraft.comparison.finetuned_models import FinetunedModels
from lingraft.comparison.plan import ALIGNMENT, MASKED, Arm
from lingraft.comparison.records import EvalResult, eval_item, save_eval_result
from lingraft.comparison.scorers import (
    Scorer,
    ScoreWithBaseline,
    alignment_scorer,
    masked_in_source,
    masked_scorer,
    task_in_source,
    task_scorer,
)
from lingraft.config.recipe import Recipe
from lingraft.data.bilingual_dictionary import judged_hashes
from lingraft.data.blocks import load_blocks
from lingraft.data.text import load_text
from lingraft.errors import ArtifactError
from lingraft.jobs.data import LanguageDirs
from lingraft.jobs.job import Job
from lingraft.jobs.training import CHECKPOINTS, EMBEDDINGS
from lingraft.model.loading import load_embeddings
from lingraft.reports.paper.records import Cell, CurvePoint, SourceCell
from lingraft.stages.alignment_probe import PART, reference_tensors
from lingraft.stages.results import SeedScores
from lingraft.tasks.item_counts import ItemCounts
from lingraft.training import precision
from lingraft.training.schedule import MetricsCallback, ignore_metrics

Found = TypeVar("Found")


def evaluate_language(
    arm: Arm,
    models: FinetunedModels,
    target: LanguageDirs,
    curve: Path,
    language: str,
    reference: Path | None = None,
    only_ends: bool = False,
) -> tuple[EvalResult, dict[str, ItemCounts]]:
    """Evaluate the learning curves of one language in one arm: on masked tokens and on each task that covers the
    language.

    Alignment is evaluated only for models restricted to it (`FinetunedModels.restricted_to`).

    Args:
        arm: arm that adapted the language.
        models: finetuned models of the arm's primary.
        target: folders of the language's text, tokenizer and blocks.
        curve: folder of the adaptation, with its checkpoints.
        language: tag of the language.
        reference: result of `ReferenceJob` for the same primary; alignment is measured with it.
        only_ends: whether only the first and the last checkpoint are evaluated.

    Returns:
        The curves, and the counts that the last checkpoint's scores are made of, by `eval_item`.
    """
    inputs = (*target, *([reference] if reference else ()), models.primary, curve / EMBEDDINGS)
    scorers: dict[str, Callable[[], Scorer]] = {}
    if models.includes(MASKED):
        scorers[MASKED] = partial(masked_scorer, models, target, language)
    if reference and models.only == ALIGNMENT:
        scorers[ALIGNMENT] = partial(
            alignment_scorer,
            recipe=arm.recipe,
            models=models,
            reference=reference,
            target=target,
            language=language,
        )
    for task in models.tasks_in(language):
        scorers[task.name] = partial(
            task_scorer, task=task, models=models, layers=models.layers, dirs=target, language=language
        )
    cells = []
    baselines: dict[str, float] = {}
    items: dict[str, ItemCounts] = {}
    for name, begin in scorers.items():
        title = f"judging of {name!r} in {language!r}: {arm.title}"
        with _evaluation_precision(arm.recipe):
            work = partial(_score_checkpoints, begin, curve / CHECKPOINTS, only_ends)
            found, failed = _result_or_reason(title, inputs, work)
        if found:
            baselines[name] = found.last.baseline
            items |= {eval_item(name, seed): counts for seed, counts in found.last.items.items()}
        cells.append(
            Cell(
                system=arm.system,
                depth=arm.depth,
                language=language,
                task=name,
                pretraining_seed=arm.seed,
                points=found.points if found else (),
                failed=failed,
            )
        )
    judged = EvalResult(
        language=language,
        cells=tuple(cells),
        baselines=baselines,
        lost=models.lost(),
        text_bytes=_text_bytes_or_none(models, target, language),
        machine=precision.device_name(),
    )
    return judged, items


def evaluate_source(models: FinetunedModels, source: LanguageDirs) -> EvalResult:
    """Evaluate a primary, and the mini-model finetuned beside it, in the source language (table 5)."""
    planned = models.planned
    recipe = planned.recipe
    language = recipe.source.language
    cells = []
    for layers in planned.task_layers:
        scores: dict[str, Callable[[], SeedScores]] = {}
        if models.includes(MASKED):
            scores[MASKED] = partial(masked_in_source, models, source, layers)
        for task in models.tasks_in(language):
            scores[task.name] = partial(task_in_source, task, models, layers, source)
        for name, score in scores.items():
            title = f"judging of {name!r} in {language!r}: {planned.title}, {layers} layers"
            with _evaluation_precision(recipe):
                found, failed = _result_or_reason(title, (*source, models.primary), score)
            cells += [
                SourceCell(
                    system=system,
                    depth=layers,
                    task=name,
                    pretraining_seed=planned.seed,
                    scores=found,
                    failed=failed,
                )
                for system in planned.systems_over(layers)
            ]
    return EvalResult(
        language=language,
        source_cells=tuple(cells),
        lost=models.lost(),
        text_bytes=_text_bytes_or_none(models, source, language),
    )


class _EvaluationJob(Job, frozen=True):
    """An evaluation of finetuned models in one language."""

    kind = Kind.EVALUATION
    records_failure: bool = True
    models: FinetunedModels
    dirs: LanguageDirs
    """Folders of the language."""
    language: str

    @property
    @override
    def inputs(self) -> dict[str, Path]:
        return self.dirs._asdict() | self.models.inputs()

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        asked = {
            task.name: task.model_dump(mode="json", include={"kind", "labels", "test"})
            for task in self.models.tasks_in(self.language)
        }
        return {"precision": self.recipe.precision, "tasks": asked}

    @property
    @override
    def work(self) -> float:
        # Masked tokens need no finetuning, hence one pass; a task needs one for each seed.
        seeds = (len(task.finetuning.seeds) for task in self.models.tasks_in(self.language))
        return self.models.layers * (self.models.includes(MASKED) + sum(seeds))


class ArmEvaluation(_EvaluationJob, frozen=True):
    """`evaluate_language` as a job; it has a result even if all of its inputs failed."""

    name_format = "judge-{job.language}-{job.arm.name}"
    title_format = "judging of {job.language!r}{job.models.only_in_words}: {job.arm.title}"
    bears_failed_inputs = True
    arm: Arm
    curve: Path
    reference: Path | None = None
    only_ends: bool = False
    """Whether only the first and the last checkpoint are evaluated."""

    @property
    @override
    def inputs(self) -> dict[str, Path]:
        reference = {"reference": self.reference} if self.reference else {}
        return super().inputs | {"embeddings": self.curve / EMBEDDINGS} | reference

    @property
    @override
    def work(self) -> float:
        return super().work * (2 if self.only_ends else len(self.recipe.adaptation.checkpoint_steps))

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        judged = self.models.only == ALIGNMENT and self.language in self.recipe.alignment.judged
        return {
            **super().settings,
            **({"only_ends": True} if self.only_ends else {}),
            **({"lines": judged_hashes(self.recipe, self.language)} if judged else {}),
        }

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        found, items = evaluate_language(
            arm=self.arm,
            models=self.models,
            target=self.dirs,
            curve=self.curve,
            language=self.language,
            reference=self.reference,
            only_ends=self.only_ends,
        )
        return save_eval_result(found, self.out, items)


class PrimaryEvaluation(_EvaluationJob, frozen=True):
    """`evaluate_source` as a job; it has a result even if all of its inputs failed."""

    name_format = "judge-source-{job.models.planned.name}"
    title_format = "judging of the source language{job.models.only_in_words}: {job.models.planned.title}"
    bears_failed_inputs = True

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        return {**super().settings, "systems": self.models.planned.systems_over(self.models.layers)}

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        return save_eval_result(evaluate_source(self.models, self.dirs), self.out)


class ReferenceJob(_EvaluationJob, frozen=True):
    """Hidden states of the source language, which alignment compares languages with: one job for all arms of a
    primary.
    """

    name_format = "reference-{job.models.planned.name}"
    title_format = "hidden states of the source language: {job.models.planned.title}"

    @property
    @override
    def inputs(self) -> dict[str, Path]:
        return self.dirs._asdict() | {"primary": self.models.primary}

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        return {"precision": self.recipe.precision}

    @property
    @override
    def work(self) -> float:
        return float(self.models.layers)

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        primary = self.models.load()
        text = load_text(self.dirs.text, self.language)
        blocks = load_blocks(self.dirs.blocks, primary.tokenizer, self.recipe.encoder.block_tokens)
        with _evaluation_precision(self.recipe):
            tensors = reference_tensors(primary, text, blocks, (self.models.layers,), ("test",))
        return save_eval_result(EvalResult(language=self.language), self.out, parts={PART: tensors})


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


class _Curve(NamedTuple):
    points: tuple[CurvePoint, ...]
    last: ScoreWithBaseline


def _score_checkpoints(begin: Callable[[], Scorer], checkpoints: Path, only_ends: bool) -> _Curve:
    folders = sorted(checkpoints.glob("step-*"))
    if only_ends:
        folders = [folder for folder in folders if folder in (folders[0], folders[-1])]
    if not folders:
        raise ArtifactError(f"{checkpoints} holds no checkpoints. Remove the adaptation beside it, and run it again.")
    score = begin()
    points = []
    for folder in folders:
        learned = load_embeddings(folder)
        last = score(learned)
        cost = learned.manifest.cost
        points.append(CurvePoint(step=cost.steps, flops=cost.flops, elapsed_s=cost.elapsed_s, scores=last.scores))
    return _Curve((*points,), last)


def _text_bytes_or_none(models: FinetunedModels, dirs: LanguageDirs, language: str) -> int | None:
    """Return the size of the training text, where masked tokens are evaluated; None if there is no text."""
    if not models.includes(MASKED):
        return None
    return _result_or_reason("counting of text", (dirs.text,), partial(_text_bytes, dirs.text, language))[0]


def _text_bytes(text: Path, language: str) -> int:
    # The text may be larger than memory.
    with (load_text(text, language).folder / "train.jsonl").open(encoding="utf-8") as lines:
        return sum(len(json.loads(line)["text"].encode()) for line in lines)

"""Evaluation in a comparison: each checkpoint of an adaptation is swapped into each model finetuned on one task.

A score that cannot be measured is recorded as missing, with its reason; the others are measured all the same.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.failures import (
    EXPECTED_ERRORS,
    InputFailedError,
    explain_device_errors,
    failure_reason,
    format_error,
    require_inputs_made,
)
from lingraft.artifacts.manifest import Kind, read_manifest
from lingraft.comparison.plan import MASKED, TRANSLATIONS, Arm, FinetuningRun, PlannedPrimary
from lingraft.comparison.records import Cell, EvaluatedCells
from lingraft.config.recipe import Recipe
from lingraft.data.bilingual_dictionary import judged_hashes
from lingraft.data.blocks import load_blocks
from lingraft.data.text import load_text
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError
from lingraft.jobs.data import LanguageDirs
from lingraft.jobs.job import Job
from lingraft.jobs.training import CHECKPOINTS, EMBEDDINGS
from lingraft.model.loading import Embeddings, LoadedPrimary, load_embeddings, load_primary
from lingraft.stages.alignment_probe import held_out_lines, probe_of_lines
from lingraft.stages.evaluate import load_tasks, masked_test_blocks
from lingraft.stages.task_tests import TaskInputs, task_test
from lingraft.training import masked_lm, precision
from lingraft.training.schedule import MetricsCallback, ignore_metrics


class ModelScores(NamedTuple):
    """Scores of some embeddings on a task, and of the best trivial answer to the same examples."""

    by_seed: dict[int, float]
    """Scores by finetuning seed, or by pretraining seed for tasks that need no finetuning."""
    trivial: float


Scorer = Callable[[Embeddings | LoadedPrimary], ModelScores]
"""A function that swaps in a language's embeddings and scores them; examples are read once, before."""


@dataclass(frozen=True)
class FinetunedModels:
    """A primary, and the models finetuned from it on one task."""

    planned: PlannedPrimary
    task: str
    primary: Path
    """Folder of the primary."""
    tasks: Path
    """Folder of all finetunings of the primary."""

    @property
    def finetunings(self) -> list[FinetuningRun]:
        """Finetunings on the task."""
        return self.planned.finetunings(self.task)

    def load(self) -> LoadedPrimary:
        """Load the primary."""
        return load_primary(self.primary, self.planned.recipe.primary_shape)

    def require_folders(self, layers: int) -> list[Path]:
        """Return the folders of the finetunings that succeeded, one a seed.

        Raises:
            InputFailedError: none did.
        """
        reasons = {
            one.path_in(self.tasks): self._missing_reason(one) for one in self.finetunings if one.layers == layers
        }
        if all(reasons.values()):
            raise InputFailedError(next(iter(reasons.values())))
        return [folder for folder, reason in reasons.items() if not reason]

    @property
    def lost(self) -> tuple[str, ...]:
        """Reasons of missing finetunings."""
        return tuple(filter(None, map(self._missing_reason, self.finetunings)))

    @property
    def inputs(self) -> dict[str, Path]:
        """All folders by name."""
        folders = [one.path_in(self.tasks) for one in self.finetunings]
        return {"primary": self.primary, **{f"finetuning {place}": each for place, each in enumerate(folders)}}

    def _missing_reason(self, wanted: FinetuningRun) -> str | None:
        folder = wanted.path_in(self.tasks)
        return failure_reason(folder) or (None if folder.is_dir() else f"{folder} is not there")


class _EvaluationJob(Job, frozen=True):
    """An evaluation on one task in one language, which has a result even if all of its inputs failed."""

    kind = Kind.EVALUATION
    models: FinetunedModels
    dirs: LanguageDirs
    language: str

    @property
    @override
    def inputs(self) -> dict[str, Path]:
        return self.dirs._asdict() | self.models.inputs

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        task = {one.name: one for one in self.recipe.tasks}.get(self.models.task)
        asked = task.model_dump(mode="json", include={"kind", "labels", "test"}) if task else {}
        return {"precision": self.recipe.precision, "task": asked}

    def _filled(self, cell: Cell, fill: Callable[[], dict[str, Any]]) -> Cell:
        """Return a cell with what is measured, or with the reason why it cannot be."""
        try:
            require_inputs_made(self.inputs[name] for name in self.inputs if not name.startswith("finetuning"))
            with explain_device_errors(), _evaluation_precision(self.recipe):
                return cell.model_copy(update=fill())
        except InputFailedError as error:
            return cell.model_copy(update={"failed": str(error)})
        except EXPECTED_ERRORS as error:
            return cell.model_copy(update={"failed": f"{self.title}: {format_error(error)}"})


class ArmEvaluation(_EvaluationJob, frozen=True):
    """Evaluates the learning curve of one language in one arm."""

    name_format = "evaluate-{job.language}-{job.models.task}-{job.arm.name}"
    title_format = "evaluation of {job.language!r} on {job.models.task!r}: {job.arm.title}"
    arm: Arm
    curve: Path
    """Folder of the adaptation, with its checkpoints."""
    start: tuple[Path, ...] = ()
    """Folders of the initial embeddings and of what they took, where they follow from text."""
    only_ends: bool = False
    """Whether only the first and the last checkpoint are evaluated."""

    @property
    @override
    def inputs(self) -> dict[str, Path]:
        return super().inputs | {"embeddings": self.curve / EMBEDDINGS}

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        lines = judged_hashes(self.recipe, self.language) if self.models.task == TRANSLATIONS else {}
        return {**super().settings, **lines, "only_ends": self.only_ends}

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        arm, models = self.arm, self.models
        named = {"system": arm.system, "depth": arm.depth, "start": arm.start, "seed": arm.seed}
        cell = self._filled(Cell(language=self.language, task=models.task, **named), self._curve)
        return EvaluatedCells(cells=(cell,), lost=models.lost, machine=precision.device_name()).save(self.out)

    def _curve(self) -> dict[str, Any]:
        folders = sorted((self.curve / CHECKPOINTS).glob("step-*"))
        if not folders:
            raise ArtifactError(f"{self.curve / CHECKPOINTS} is empty. Remove {self.curve}, and run the same again.")
        if self.only_ends:
            folders = [folders[0], folders[-1]]
        score = _scorer(self.models, self.recipe, self.dirs, self.language, self.models.planned.layers)
        learned = [load_embeddings(folder) for folder in folders]
        scores = [score(each) for each in learned]
        costs = [each.manifest.cost for each in learned]
        return {
            "steps": tuple(cost.steps for cost in costs),
            "flops": tuple(cost.flops for cost in costs),
            "elapsed_s": tuple(cost.elapsed_s for cost in costs),
            "scores": {seed: tuple(each.by_seed[seed] for each in scores) for seed in scores[0].by_seed},
            "trivial": scores[-1].trivial,
            **self._start_facts(),
        }

    def _start_facts(self) -> dict[str, Any]:
        manifests = [read_manifest(folder) for folder in self.start]
        quality = manifests[0].details.get("alignment", {}) if manifests else {}
        seconds = sum(manifest.recorded("elapsed_s", float) for manifest in manifests)
        return {"start_s": seconds, "is_aligned": quality.get("succeeded", True)}


class PrimaryEvaluation(_EvaluationJob, frozen=True):
    """Evaluates a primary, and the mini-model finetuned beside it, in the source language (table 5)."""

    name_format = "evaluate-source-{job.models.task}-{job.models.planned.name}"
    title_format = "evaluation of the source language on {job.models.task!r}: {job.models.planned.title}"

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        models, cells = self.models, []
        for layers in models.planned.task_layers:
            named = {"depth": layers, "language": self.language, "task": models.task, "seed": models.planned.seed}
            systems = models.planned.systems_over(layers)
            first = Cell(system=systems[0], **named)
            filled = self._filled(first, partial(self._final, layers))
            cells += [filled.model_copy(update={"system": system}) for system in systems]
        return EvaluatedCells(cells=tuple(cells), lost=models.lost).save(self.out)

    def _final(self, layers: int) -> dict[str, Any]:
        found = _scorer(self.models, self.recipe, self.dirs, self.language, layers)(self.models.load())
        return {"scores": {seed: (score,) for seed, score in found.by_seed.items()}, "trivial": found.trivial}


def _scorer(models: FinetunedModels, recipe: Recipe, dirs: LanguageDirs, language: str, layers: int) -> Scorer:
    """Read the test examples of a task in a language, and return a scorer for models of so many layers."""
    if models.task == MASKED:
        return _masked_scorer(models, recipe, dirs, layers)
    if models.task == TRANSLATIONS:
        return _translation_scorer(models, recipe, dirs, language)
    task = recipe.task(models.task)
    text = load_text(dirs.text, language) if task.reads_text else None
    tokenizer = Tokenizer.load(dirs.tokenizer, language)
    [finetuned] = load_tasks(models.require_folders(layers)).values()
    primary = models.load()
    test = task_test(TaskInputs(task, finetuned, text, tokenizer, primary))
    if test is None:
        raise ArtifactError(
            f"task {task.name!r} looks for paragraphs among those that the evaluation of the source keeps, which a "
            "comparison of systems does not make. Give it test examples of another kind."
        )

    def score(embeddings: Embeddings | LoadedPrimary) -> ModelScores:
        if isinstance(embeddings, Embeddings):
            primary.lend_to(embeddings)
        found = {}
        for model in finetuned:
            model.swap_in(embeddings)
            found[model.seed] = test.judge(model)
        return ModelScores({seed: one.tally.score for seed, one in found.items()}, found[finetuned[0].seed].baseline)

    return score


def _masked_scorer(models: FinetunedModels, recipe: Recipe, dirs: LanguageDirs, layers: int) -> Scorer:
    """Return a scorer for masked tokens, always at 15%; the trivial answer is the most frequent piece."""
    tokenizer = Tokenizer.load(dirs.tokenizer)
    blocks_NT = masked_test_blocks(recipe, load_blocks(dirs.blocks, tokenizer, recipe.encoder.block_tokens))
    trivial = _most_frequent_share(blocks_NT, [*tokenizer.special])
    primary = models.load()

    def score(embeddings: Embeddings | LoadedPrimary) -> ModelScores:
        if isinstance(embeddings, Embeddings):
            primary.swap_in(embeddings)
        found = masked_lm.accuracy(primary.encoder.to(precision.device()), blocks_NT, (layers,))
        return ModelScores({models.planned.seed: found[layers]}, trivial)

    return score


def _most_frequent_share(blocks_NT: Tensor, special: Sequence[int]) -> float:
    counts_V = torch.bincount(blocks_NT.flatten().long(), minlength=max(special) + 1)
    counts_V[special] = 0
    return float(counts_V.max() / counts_V.sum())


def _translation_scorer(models: FinetunedModels, recipe: Recipe, dirs: LanguageDirs, language: str) -> Scorer:
    """Return a scorer for translations found, both ways, by states of the top layer; the trivial answer is a guess."""
    lines = held_out_lines(recipe, language, "test")
    if not lines:
        raise ArtifactError(f"alignment.judged has too few lines in {language!r}. Give more, or leave them out.")
    primary, top = models.load(), models.planned.layers
    probe = probe_of_lines(primary, lines, Tokenizer.load(dirs.tokenizer, language), (top,))

    def score(embeddings: Embeddings | LoadedPrimary) -> ModelScores:
        if isinstance(embeddings, Embeddings):
            primary.swap_in(embeddings)
        found = probe.measure(primary.encoder, (top,))[top].tally.score
        return ModelScores({models.planned.seed: found}, 1 / probe.pairs)

    return score


def _evaluation_precision(recipe: Recipe) -> AbstractContextManager[object]:
    """Context for evaluation in bf16 where the recipe asks for it; `auto` could choose differently in each training."""
    return precision.autocast("bf16" if recipe.precision == "bf16" else "fp32")()

"""Jobs that evaluate a source language or a target language, and the folders of a source, which scores are of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind, read_manifest
from lingraft.config.recipe import Recipe
from lingraft.data.bilingual_dictionary import judged_hashes
from lingraft.jobs.job import OF_TRAINING, Job, LanguageJob
from lingraft.jobs.launchable import Input, InputList, OptionalInput
from lingraft.tasks.fingerprints import marks_of
from lingraft.training.schedule import MetricsCallback, ignore_metrics

_OF_EVALUATION = (*OF_TRAINING, "test_blocks", "system", "mini", "adaptation", "alignment")
"""Values of a recipe that scores depend on, beside the tasks."""
SOURCE_RECIPE = "recipe.json"
"""File with the recipe beside the folders of a source that was brought from a registry."""


class SourceDirs(NamedTuple):
    """Folders of a project's source; `mini` and `vectors` are empty where the recipe needs none."""

    primary: Path
    tasks: Path
    """Folder of `<task>/seed-<seed>`."""
    evaluation: Path
    mini: Path
    vectors: Path

    @classmethod
    def under(cls, folder: Path) -> "SourceDirs":
        """Return the folders of a source that has one folder for all of it."""
        return cls(
            primary=folder / "primary",
            tasks=folder / "tasks",
            evaluation=folder / "evaluation",
            mini=folder / "mini",
            vectors=folder / "vectors",
        )


class _StageEvaluation(Job, frozen=True):
    """An evaluation of a primary's finetuned tasks in one language."""

    kind = Kind.EVALUATION
    sections = _OF_EVALUATION
    primary: Input
    tasks: InputList = ()
    """One folder for each task and seed."""
    text: Input
    blocks: Input

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        # Neither questions to an endpoint nor names for people change a score.
        irrelevant: Any = {"examples": True, "label_names": True, "finetuning": True}
        tasks = [task.model_dump(mode="json", exclude=irrelevant) for task in self.recipe.tasks]
        return {"tasks": tasks, **super().settings}


class SourceEvaluationJob(_StageEvaluation, frozen=True):
    """Evaluates a primary and its finetuned tasks on the source language's test split."""

    name_format = "evaluate-source"
    title_format = "evaluation of the source language"

    @override
    def outside(self) -> Mapping[str, Any]:
        return _test_marks(self.recipe, self.recipe.source.language)

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.stages.evaluate import evaluate_source

        return evaluate_source(
            recipe=self.recipe,
            primary=self.primary,
            tasks=self.tasks,
            text=self.text,
            blocks=self.blocks,
            out=self.out,
        )


class LanguageEvaluationJob(_StageEvaluation, LanguageJob, frozen=True):
    """Evaluates a language's embeddings on its test split: masked accuracy, alignment and zero-shot scores."""

    name_format = "evaluate-{job.tag}-{job.depth}"
    title_format = "evaluation of {job.tag!r}"
    tagged_input = "embeddings"
    embeddings: Input
    mini: OptionalInput = None
    initial: OptionalInput = None
    source_evaluation: OptionalInput = None
    """Evaluation of the source language; None: alignment is not measured."""

    @property
    def depth(self) -> int:
        """Bottom layers of the primary that the embeddings were learned over."""
        return int(read_manifest(self.embeddings).detail("depth", int))

    @override
    def outside(self) -> Mapping[str, Any]:
        return {**_test_marks(self.recipe, self.tag), **judged_hashes(self.recipe, self.tag)}

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.stages.evaluate import evaluate_language

        return evaluate_language(
            recipe=self.recipe,
            primary=self.primary,
            embeddings=self.embeddings,
            tasks=self.tasks,
            text=self.text,
            blocks=self.blocks,
            out=self.out,
            mini=self.mini,
            initial=self.initial,
            source_evaluation=self.source_evaluation,
        )


def _test_marks(recipe: Recipe, language: str) -> dict[str, Any]:
    """Hashes of the test examples in a language, of tasks that have examples of their own."""
    return {task.name: marks_of(task, ("test",), language) for task in recipe.tasks_in(language)}

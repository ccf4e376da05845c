"""Exports of an added language: checkpoints for transformers, and ONNX bundles for the endpoint."""

from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.cache import is_made
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.errors import MissingExtraError
from lingraft.huggingface.export import export_hf
from lingraft.jobs.job import Job
from lingraft.jobs.launchable import Input
from lingraft.new_language.stage import Stages
from lingraft.new_language.summary import MASKED_LM
from lingraft.new_language.tasks import LanguageTask
from lingraft.training.schedule import MetricsCallback, ignore_metrics

CHECKPOINT = "checkpoint"
"""Name of the stage that exports a checkpoint, for its progress."""


class _BundleBuilding(Job, frozen=True):
    kind = Kind.BUNDLE
    primary: Input
    task: Input
    embeddings: Input

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        from lingraft.export import export_bundle

        return export_bundle(self.primary, self.task, [self.embeddings], self.out)


@dataclass(frozen=True)
class Exports:
    """A judged language, to be exported with every task."""

    recipe: Recipe
    primary: Path
    tasks: dict[str, LanguageTask]
    has_head: bool
    """Whether the primary has an MLM head."""
    learned: Artifact
    """Embeddings of the language."""
    scores: Artifact
    """Evaluation of the embeddings."""
    out: Path
    stages: Stages

    def checkpoints(self) -> dict[str, Path]:
        """Export and return folders for transformers by task, and one with the MLM head if the primary has one."""
        tasks: dict[str, LanguageTask | None] = {**({MASKED_LM: None} if self.has_head else {}), **self.tasks}
        return {name: self._checkpoint(self.out / "hf" / name, task) for name, task in tasks.items()}

    def _checkpoint(self, folder: Path, task: LanguageTask | None) -> Path:
        provenance = {
            "primary": self.learned.manifest.aligned_with,
            "embeddings": self.learned.fingerprint,
            "evaluation": self.scores.fingerprint,
        } | ({"task": task.best_fingerprint} if task else {})
        with self.stages.counted(CHECKPOINT) as reused:
            reused.append(is_made(folder, provenance))
            if not reused[0]:
                export_hf(
                    primary=self.primary,
                    out=folder,
                    embeddings=self.learned.folder,
                    task=task.best_folder if task else None,
                    evaluation=self.scores.folder,
                )
        say(f"checkpoint: {folder}")
        return folder

    def bundles(self) -> tuple[dict[str, Path], dict[str, str]]:
        """Export and return bundles by task, and the reasons why others have none."""
        bundles = {}
        reasons = {}
        for name, task in self.tasks.items():
            job = _BundleBuilding(
                recipe=self.recipe,
                primary=self.primary,
                task=task.best_folder,
                embeddings=self.learned.folder,
                out=self.out / "bundle" / name,
            )
            try:
                bundles[name] = self.stages.run(job).folder
            except MissingExtraError as error:
                reasons[f"bundled for the endpoint, task {name!r}"] = str(error)
        return bundles, reasons

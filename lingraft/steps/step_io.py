"""What steps tell beside their artifacts, and where they find one another's folders."""

import re
from collections.abc import Sequence
from pathlib import Path

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.config.recipe import Recipe
from lingraft.stages.results import TaskScores
from lingraft.tasks.class_scores import class_scores

Scores = dict[str, float]
ScoresAndConfusion = tuple[Scores, list[str], list[list[int]]]
"""Scores to show; labels and confusion matrix of the first task that has classes, both empty without one."""


def cost_of(made: Artifact) -> Scores:
    """What training an artifact took."""
    return {key: float(value) for key, value in made.manifest.cost.model_dump().items()}


def confusion_of(tasks: Sequence[TaskScores]) -> tuple[list[str], list[list[int]]]:
    """Labels and confusion matrix of the first task that has classes."""
    with_classes = [(task.labels, task.confusion) for task in tasks if task.confusion]
    return with_classes[0] if with_classes else ([], [])


def recalls(tasks: Sequence[TaskScores]) -> Scores:
    """Recall of every class that has test examples, over all seeds, in a group of metrics for each task."""
    return {
        f"recall {task.name}/{name}": score.recall
        for task in tasks
        for name, score in zip(_metric_names(task.labels), class_scores(task.confusion), strict=False)
        if score.recall is not None
    }


def _metric_names(labels: Sequence[str]) -> list[str]:
    """Labels as MLflow takes them in names of metrics; those that would become equal get their number."""
    words = [re.sub(r"[^\w.\- ]", "_", label) for label in labels]
    return [word if words.count(word) == 1 else f"{word} {place}" for place, word in enumerate(words)]


def dev_score_and_seed(task: Path) -> tuple[float, int]:
    """Dev score and seed: what the champion has most of, so that it is the same one wherever it is asked for."""
    manifest = Artifact.load(task, Kind.TASK).manifest
    return manifest.detail("dev_score", float), manifest.detail("seed", int)


def task_folders(recipe: Recipe, tasks: Path) -> list[Path]:
    """One folder a task and finetuning seed; none without tasks, and then `tasks` need not exist."""
    return [tasks / task.name / f"seed-{seed}" for task in recipe.tasks for seed in task.finetuning.seeds]


def non_empty(folder: Path) -> Path | None:
    """A folder that is not empty: KFP has no inputs that may be absent inside a loop."""
    return folder if any(folder.iterdir()) else None


def language_of(folder: Path, kind: Kind) -> str:
    """Language of an artifact of the kind expected."""
    return str(Artifact.load(folder, kind).manifest.language)

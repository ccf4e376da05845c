"""Scores of evaluations to show beside steps, and the folders that steps share."""

import re
from collections.abc import Sequence
from pathlib import Path

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.stages.results import TaskScores
from lingraft.steps.run_job import Scores
from lingraft.tasks.class_scores import class_scores

ScoresAndConfusion = tuple[Scores, list[str], list[list[int]]]
"""Scores to show, then labels and confusion matrix of the first task with classes, both empty without one."""


def confusion_of(tasks: Sequence[TaskScores]) -> tuple[list[str], list[list[int]]]:
    """Return labels and confusion matrix of the first task with classes; both empty without one."""
    with_classes = [(task.labels, task.confusion) for task in tasks if task.confusion]
    return with_classes[0] if with_classes else ([], [])


def recalls(tasks: Sequence[TaskScores]) -> Scores:
    """Return the recall of every class with test examples, over all seeds, as one group of metrics for each task."""
    return {
        f"recall {task.name}/{name}": score.recall
        for task in tasks
        for name, score in zip(_metric_names(task.labels), class_scores(task.confusion), strict=False)
        if score.recall is not None
    }


def _metric_names(labels: Sequence[str]) -> list[str]:
    """Return labels as MLflow allows them in names of metrics; labels that would become equal get their index."""
    words = [re.sub(r"[^\w.\- ]", "_", label) for label in labels]
    return [word if words.count(word) == 1 else f"{word} {place}" for place, word in enumerate(words)]


def dev_score_and_seed(task: Path) -> tuple[float, int]:
    """Return dev score and seed of a task; the champion has the highest, so all steps choose the same one."""
    manifest = Artifact.load(task, Kind.TASK).manifest
    return manifest.detail("dev_score", float), manifest.detail("seed", int)

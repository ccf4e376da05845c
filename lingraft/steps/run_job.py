"""Run a job as a step, under a tracking run of its own; scores and promotions that steps share."""

import re
from collections.abc import Sequence
from pathlib import Path

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.failures import require_inputs_made
from lingraft.artifacts.manifest import Kind
from lingraft.config.gate import Gate
from lingraft.console import say
from lingraft.errors import PromotionError
from lingraft.jobs.job import Job
from lingraft.stages.results import TaskScores
from lingraft.tasks.class_scores import class_scores
from lingraft.tracking.gate import refusal_reason
from lingraft.tracking.promotion import Verdict, promote
from lingraft.training.metrics import expose_metrics

Scores = dict[str, float]
ScoresAndConfusion = tuple[Scores, list[str], list[list[int]]]
"""Scores to show, then labels and confusion matrix of the first task with classes, both empty without one."""
_TRAINED = {Kind.PRIMARY, Kind.MINI, Kind.TASK, Kind.EMBEDDINGS}


def run_job(job: Job, run: Path) -> Scores:
    """Run a job, or take its shared result; register the artifact if the job says so.

    Args:
        job: job to run.
        run: file with the id of the pipeline's tracking run.

    Returns:
        The cost and scores of the artifact.
    """
    require_inputs_made(job.inputs.values())
    with tracking.stage(run.read_text(), job.name) as stage:
        watch = expose_metrics(job.name, stage.watch) if job.kind in _TRAINED else stage.watch
        with job.shared(watch) as missing:  # as get_or_make does, without its frame below optimizer.step()
            if missing:
                missing.make(watch)
        made = Artifact.load(job.made, job.kind)
        scores = job.scores_of(made)
        stage.record(made, scores)
        if job.registered_as:
            facts = {"recipe": job.recipe.digest()}
            tracking.register(job.registered_as, made.folder, made.manifest.kind, stage, facts)
    return cost_of(made) | scores


def cost_of(made: Artifact) -> Scores:
    """Return the cost of training an artifact as scores."""
    return {key: float(value) for key, value in made.manifest.cost.model_dump().items()}


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


def requester(stage: tracking.StageRun) -> str:
    """Return the requester of a promotion, for the verdict."""
    return f"pipeline, run {stage.run_id}"


def promote_version(stage: tracking.StageRun, name: str, version: int, gate: Gate | None = None) -> Verdict:
    """Promote a version if it passes the gate, and log the result."""
    verdict = promote(stage.client, name, version, requester(stage), gate)
    if verdict.passed and verdict.before != version:
        say(f"Version {version} of {name!r} is champion, in place of {verdict.before or 'none'}.")
    return verdict


def require_champion(stage: tracking.StageRun, name: str, version: int) -> None:
    """Promote a version that the pipeline has just made for the current primary; a refusal is an error."""
    verdict = promote_version(stage, name, version)
    if not verdict.passed:
        raise PromotionError(f"version {version} of {name!r} is not promoted. {refusal_reason(verdict.checks)}")

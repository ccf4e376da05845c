"""Run a job as a step, under a tracking run of its own."""

import contextlib
from pathlib import Path

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.artifacts.failures import failure_reason, record_failure, require_inputs_made
from lingraft.jobs.job import Job
from lingraft.training.metrics import expose_metrics

Scores = dict[str, float]
_TRAINED = {Kind.PRIMARY, Kind.MINI, Kind.TASK, Kind.EMBEDDINGS}


def run_job(job: Job, run: Path) -> Scores:
    """Run a job, or take its shared result; register the artifact if the job says so.

    Args:
        job: job to run.
        run: file with the id of the pipeline's tracking run.

    Returns:
        The cost and scores of the artifact; nothing if the job failed and records that.

    Raises:
        LingraftError: the job failed, and does not record that.
    """
    shown: Scores = {}
    with record_failure(job.made, job.title) if job.records_failure else contextlib.nullcontext():
        if not job.bears_failed_inputs:
            require_inputs_made(job.inputs.values())
        with tracking.stage(run.read_text(), job.name) as stage:
            watch = expose_metrics(job.name, stage.watch) if job.kind in _TRAINED else stage.watch
            with job.shared(watch) as missing:
                if missing:
                    missing.make(watch)
            made = Artifact.load(job.made, job.kind)
            scores = job.scores_of(made)
            stage.record(made, scores)
            if job.registered_as:
                facts = {"recipe": job.recipe.digest()}
                tracking.register(job.registered_as, made.folder, made.manifest.kind, stage, facts)
        shown = cost_of(made) | scores
    return {} if failure_reason(job.made) else shown


def cost_of(made: Artifact) -> Scores:
    """Return the cost of training an artifact as scores."""
    return {key: float(value) for key, value in made.manifest.cost.model_dump().items()}

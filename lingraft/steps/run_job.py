"""Run a job as a step: under a tracking run of its own, with its result taken from the cache if it is there."""

from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.artifacts.failures import failure_reason
from lingraft.jobs.job import Job
from lingraft.jobs.shared_results import get_or_run, has_result
from lingraft.steps.step_io import Scores, cost_of
from lingraft.training.metrics import expose_metrics

_CHECKING: ContextVar[bool] = ContextVar("only asked", default=False)
_JOB = "lingraft_job"
_TRAINED = {Kind.PRIMARY, Kind.MINI, Kind.TASK, Kind.EMBEDDINGS}
Step = TypeVar("Step", bound=Callable[..., object])


class _CheckResult(BaseException):
    """Carries the answer of a check out of a step: whether the job's result exists."""

    def __init__(self, is_done: bool) -> None:
        self.is_done = is_done


def single_job(step: Step) -> Step:
    """Mark a step that runs one job and does nothing before it, so that `is_job_done` can check it."""
    setattr(step, _JOB, True)
    return step


def is_job_done(step: Callable[..., object], call: Callable[[], object]) -> bool:
    """Return whether the result of a step's job exists, without running the job.

    Args:
        step: function of the step.
        call: calls the function with its arguments.
    """
    if not hasattr(step, _JOB):
        return False
    token = _CHECKING.set(True)
    try:
        call()
    except _CheckResult as answer:
        return answer.is_done
    finally:
        _CHECKING.reset(token)
    return False  # an input failed, so the step ended before its job


ScoresOf = Callable[[Artifact], Scores]
Register = Callable[[Artifact, tracking.StageRun], object]


def run_job(
    job: Job, run: Path, scores_of: ScoresOf = lambda _: {}, register: Register = lambda _made, _stage: None
) -> Scores:
    """Run a job, or take its result from the cache, and return its cost and scores.

    Args:
        job: job to run.
        run: file with the id of the pipeline's tracking run.
        scores_of: returns the scores of the result.
        register: registers the result, if the step does so.

    Raises:
        LingraftError: the job failed.
    """
    if _CHECKING.get():
        raise _CheckResult(has_result(job))
    with tracking.stage(run.read_text(), job.name) as stage:
        made = get_or_run(job, expose_metrics(job.name, stage.watch) if job.kind in _TRAINED else stage.watch)
        scores = scores_of(made)
        stage.record(made, scores)
        register(made, stage)
    return cost_of(made) | scores


def run_or_record_failure(job: Job, run: Path, scores_of: ScoresOf = lambda _: {}) -> Scores:
    """Run one of several independent jobs; if it fails, write the reason to its folder instead of raising.

    Returns:
        Its cost and scores; nothing if it failed.
    """
    found: Scores = {}
    job.attempt(lambda: found.update(run_job(job, run, scores_of)))
    return {} if failure_reason(job.made) else found

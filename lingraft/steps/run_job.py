"""How a step does its job: under a tracking run of its own, and only if it has not been done before."""

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
from lingraft.training.metrics import exposed

_CHECKING: ContextVar[bool] = ContextVar("only asked", default=False)
_JOB = "lingraft_job"
_TRAINED = {Kind.PRIMARY, Kind.MINI, Kind.TASK, Kind.EMBEDDINGS}
Step = TypeVar("Step", bound=Callable[..., Scores])


class _CheckResult(BaseException):
    """Whether the job has been done before."""

    def __init__(self, is_done: bool) -> None:
        self.is_done = is_done


def single_job(step: Step) -> Step:
    """Mark a step that does one job and nothing before it, of which can be asked whether it has been done."""
    setattr(step, _JOB, True)
    return step


def is_job_done(step: Callable[..., object], call: Callable[[], object]) -> bool:
    """Whether a step's job has been done before; nothing is done.

    Args:
        step: the function.
        do_it: calls it with its arguments.
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
    return False  # an input has failed, and so has the job


ScoresOf = Callable[[Artifact], Scores]
Register = Callable[[Artifact, tracking.StageRun], object]


def run_job(
    job: Job, run: Path, scores_of: ScoresOf = lambda _: {}, register: Register = lambda _made, _stage: None
) -> Scores:
    """Do a job; returns what it cost, and its scores.

    Args:
        job: to be done.
        run: file that names the pipeline's tracking run.
        scores_of: the scores of what was made.
        register: puts it into the registry, where it goes there by itself.

    Raises:
        LingraftError: it failed.
    """
    if _CHECKING.get():
        raise _CheckResult(has_result(job))
    with tracking.stage(run.read_text(), job.name) as stage:
        made = get_or_run(job, exposed(job.name, stage.watch) if job.kind in _TRAINED else stage.watch)
        scores = scores_of(made)
        stage.record(made, scores)
        register(made, stage)
    return cost_of(made) | scores


def run_or_record_failure(job: Job, run: Path, scores_of: ScoresOf = lambda _: {}) -> Scores:
    """The same for a job of many that do not wait for each other: if it fails, its folder says why.

    Returns:
        What it cost, and its scores; nothing if it failed.
    """
    found: Scores = {}
    job.attempt(lambda: found.update(run_job(job, run, scores_of)))
    return {} if failure_reason(job.made) else found

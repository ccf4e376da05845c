"""The steps that may be launched: each class of launchable with the function that runs it."""

from collections.abc import Callable
from typing import Any

from lingraft.errors import LingraftError
from lingraft.jobs.data import BlocksJob, TextJob, TokenizerJob
from lingraft.jobs.evaluation import SourceEvaluationJob
from lingraft.jobs.job import Job
from lingraft.jobs.launchable import Launchable
from lingraft.jobs.training import (
    AdaptationJob,
    FinetuningJob,
    InitialisationJob,
    MiniBuildingJob,
    PretrainingJob,
    VectorsJob,
)
from lingraft.steps import data, language, paper, search, source
from lingraft.steps.launch.calls import Call
from lingraft.steps.run_job import run_job

StepFunction = Callable[[Any, Any], Any]
"""A function of a launchable and the file with the id of the tracking run; it returns the numbers to show."""
STEPS: dict[type[Launchable], StepFunction] = {
    TextJob: data.prepare_text,
    TokenizerJob: run_job,
    BlocksJob: run_job,
    VectorsJob: run_job,
    PretrainingJob: run_job,
    MiniBuildingJob: run_job,
    FinetuningJob: run_job,
    InitialisationJob: run_job,
    AdaptationJob: run_job,
    SourceEvaluationJob: source.evaluate_source,
    language.DepthChoice: language.choose_depths,
    language.EvaluateLanguage: language.evaluate_language,
    language.LanguageRegistration: language.register_language,
    language.BundleExport: language.export_bundle,
    search.DepthTrials: search.try_depths,
    search.DepthSearch: search.search_depth,
    paper.LanguagePreparation: paper.prepare_language,
    paper.SourceJudging: paper.judge_source,
    paper.LanguageJudging: paper.judge_language,
}
_BY_NAME = {kind.__name__: kind for kind in STEPS}


class UnknownStepError(LingraftError):
    """The table has no step of a name."""


def load(call: Call) -> Launchable:
    """Return the launchable of a call.

    Raises:
        UnknownStepError: there is no such step; the message lists all.
    """
    if call.step not in _BY_NAME:
        raise UnknownStepError(f"there is no step {call.step!r}; there are {', '.join(_BY_NAME)}.")
    return _BY_NAME[call.step](**call.arguments)


def is_done(work: Launchable) -> bool:
    """Return whether the shared result of a step exists, so that it needs no machine of its own."""
    return isinstance(work, Job) and STEPS[type(work)] is run_job and work.has_shared_result()

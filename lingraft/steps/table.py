"""The steps of pipelines: each class of launchable with the function that runs it."""

from collections.abc import Callable
from typing import Any

from lingraft.jobs.data import BlocksJob, TextJob, TokenizerJob
from lingraft.jobs.evaluation import SourceEvaluationJob
from lingraft.jobs.launchable import Launchable
from lingraft.jobs.training import (
    AdaptationJob,
    FinetuningJob,
    InitialisationJob,
    MiniBuildingJob,
    PretrainingJob,
    VectorsJob,
)
from lingraft.steps import compare, data, language, search, source
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
    compare.SystemComparison: compare.compare,
}

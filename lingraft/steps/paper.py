"""The paper's comparison as pipeline steps; a failed step writes the reason to its folder, and the run goes on."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from lingraft import tracking
from lingraft.artifacts.failures import record_failure
from lingraft.artifacts.files import atomic_folder
from lingraft.comparison.plan import plan_comparison
from lingraft.config.recipe import Recipe
from lingraft.jobs.data import LanguageDirs, language_jobs
from lingraft.jobs.job import Job
from lingraft.jobs.launchable import Input, InputList, Launchable, Output
from lingraft.steps.run_job import Scores, run_job


class LanguagePreparation(Launchable, frozen=True):
    """Prepares one language of the comparison."""

    language: str
    text: Output
    tokenizer: Output
    blocks: Output


class _Judging(Launchable, frozen=True):
    """An evaluation in the comparison, which has a result even if inputs failed."""

    failed_result: ClassVar[Any] = {}
    primary: Input
    text: Input
    tokenizer: Input
    blocks: Input
    out: Output
    records_failure: bool = True

    @property
    def language_dirs(self) -> LanguageDirs:
        """Folders of the language that is evaluated."""
        return LanguageDirs(text=self.text, tokenizer=self.tokenizer, blocks=self.blocks)


class SourceJudging(_Judging, frozen=True):
    """The evaluation of a primary, and of the models finetuned from it, in the source language."""

    name: str
    """Name of the primary in the comparison's plan."""
    finetuned: InputList = ()
    """Outputs of the finetunings."""
    tasks: Output
    """All finetuned models in one folder."""


class LanguageJudging(_Judging, frozen=True):
    """The evaluation of a language's checkpoints in one arm."""

    arm: str
    """Name of the arm in the comparison's plan."""
    language: str
    tasks: Input
    """Folder of all finetuned models."""
    curve: Input
    """Output of the adaptation."""


def prepare_language(given: LanguagePreparation, run: Path) -> None:
    """Read a language's text, train its tokenizer, and pack its blocks."""
    folders = LanguageDirs(text=given.text, tokenizer=given.tokenizer, blocks=given.blocks)
    for job in language_jobs(given.recipe, given.language, folders, records_failure=True):
        run_job(job, run)


def judge_source(given: SourceJudging, run: Path) -> Scores:
    """Gather a primary's finetuned models in one folder, and evaluate them in the source language."""
    from lingraft.comparison.evaluate import PrimaryEvaluation
    from lingraft.comparison.finetuned_models import FinetunedModels

    gather(given.finetuned, given.tasks)
    planned = plan_comparison(given.recipe).primary(given.name)
    job = PrimaryEvaluation(
        recipe=planned.recipe,
        models=FinetunedModels(planned, given.primary, given.tasks),
        dirs=given.language_dirs,
        language=planned.recipe.source.language,
        out=given.out / planned.name,
    )
    return _evaluate(job, run)


def judge_language(given: LanguageJudging, run: Path) -> Scores:
    """Evaluate every checkpoint of a language in one arm, and return the final scores."""
    from lingraft.comparison.evaluate import ArmEvaluation
    from lingraft.comparison.finetuned_models import FinetunedModels

    comparison = plan_comparison(given.recipe)
    arm = comparison.arm(given.arm)
    job = ArmEvaluation(
        recipe=arm.recipe,
        arm=arm,
        models=FinetunedModels(comparison.primary(arm.primary), given.primary, given.tasks),
        dirs=given.language_dirs,
        curve=given.curve,
        language=given.language,
        out=given.out / given.arm / given.language,
    )
    return _evaluate(job, run)


def gather(folders: Sequence[Path], out: Path) -> None:
    """Merge several folders into one; files that two of them have are the same in both."""
    with atomic_folder(out) as merged:
        for folder in folders:
            shutil.copytree(folder, merged, dirs_exist_ok=True)


def report(recipe: str, run: Path, results: Path, out: Path) -> str:
    """Write the comparison's report from all evaluations, and return its page's HTML."""
    from lingraft.comparison.records import load_eval_results, merge_records
    from lingraft.reports.paper import report as paper_report

    with tracking.stage(run.read_text(), "report") as stage:
        records = merge_records(plan_comparison(Recipe.parse(recipe)), load_eval_results(results))
        stage.log_artifact(paper_report.write(records, out), "report")
    tracking.close_run(run.read_text())
    return (out / paper_report.PAGE_FILE).read_text(encoding="utf-8")


def _evaluate(job: Job, run: Path) -> Scores:
    """Run an evaluation under a tracking run of its own, and return the scores there are."""
    from lingraft.comparison.records import final_scores, load_eval_result

    with record_failure(job.made, job.title), tracking.stage(run.read_text(), job.name) as stage:
        made = job.make(stage.watch)  # never from the cache: parts that failed before may succeed now
        stage.record(made, final_scores(load_eval_result(made.folder)))
    return final_scores(load_eval_result(job.made))

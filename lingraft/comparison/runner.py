"""The paper's comparison on one machine, one job after another; an interrupted run resumes where it stopped.

Processes that run the same comparison into the same folder share its jobs.

A failed job leaves a missing cell in the tables, with its reason; it is tried again when the comparison resumes.
Missing cells are no error of the run: it succeeds, and reports how many there are.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.cache import find_or_note, require_same_provenance
from lingraft.artifacts.failures import clear_failure, failure_reason, record_failure, require_inputs_made
from lingraft.artifacts.files import explain_write_errors, write_text
from lingraft.artifacts.locks import folder_lock
from lingraft.artifacts.manifest import Kind
from lingraft.comparison import jobs
from lingraft.comparison.evaluate import ArmEvaluation, PrimaryEvaluation, ReferenceJob
from lingraft.comparison.finetuned_models import FinetunedModels
from lingraft.comparison.plan import ALIGNMENT, MASKED, Arm, Comparison, PlannedPrimary, plan_comparison
from lingraft.comparison.records import EvalResult, MissingCells, count_missing, load_eval_result, merge_records
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task
from lingraft.console import say
from lingraft.errors import ArtifactError, InUseError
from lingraft.jobs.data import LanguageDirs, language_jobs
from lingraft.jobs.job import Job
from lingraft.jobs.training import VectorsJob
from lingraft.reports.paper import report as paper_report
from lingraft.reports.paper.records import RECORDS_FILE, PaperRecords
from lingraft.reports.paper.report import MARKDOWN_FILE
from lingraft.retry import poll

REPORT = "report"
"""Folder of the finished report within the results."""


_POLL_S = 1.0


def run(recipe: Recipe, out: Path, on_records: Callable[[PaperRecords], None] | None = None) -> Artifact:
    """Pretrain, finetune, adapt and evaluate everything in the recipe's [paper], and write the report.

    Each new evaluation updates the records and tables (`records.json`, `paper.md`); the whole report with its figures
    is written at the end (`report/`).

    Args:
        recipe: recipe with a [paper] section.
        out: folder of all results; where it has results of an earlier run, only the missing ones are run.
        on_records: called with the records so far, at the start and after each new evaluation.

    Raises:
        RecipeError: the recipe has no [paper], or a task has the name of the comparison's own.
        ProvenanceMismatchError: `out` has results that were trained from other settings.
        ArtifactError: `out` cannot be written.
        MissingExtraError: matplotlib or jinja2 is not installed.
    """
    comparison = plan_comparison(recipe)
    planned = [*comparison_jobs(comparison, out)]
    standing = existing_results(planned)

    report = on_records or (lambda _: None)
    report(merge_records(comparison, [*standing.values()]))
    known = {made for made, judged in standing.items() if judged.is_complete}
    for job in run_jobs(planned):
        if job.kind is Kind.EVALUATION and job.made not in known:
            report(_write_progress(comparison, planned, out))
    if known:  # some are evaluated again where their inputs were made again
        report(_write_progress(comparison, planned, out))
    records = merge_records(comparison, [load_eval_result(job.made) for job in planned if job.kind is Kind.EVALUATION])
    with folder_lock(out / REPORT, wait=True):
        made = _write_report(records, out / REPORT)
    _say_missing(count_missing(comparison, records), out / MARKDOWN_FILE)
    return made


def run_jobs(planned: Sequence[Job]) -> Iterator[Job]:
    """Run the jobs that are not done, log how many are left and how long they take, and yield each one afterwards.

    Args:
        planned: jobs, each after those that it depends on; processes with jobs of the same outputs share them.

    Raises:
        ProvenanceMismatchError: an output was made from other settings.
        ArtifactError: an output cannot be written.
    """
    clock = _TimeEstimate(planned)
    for number, job in enumerate(claim_in_turn(planned), start=1):
        say(f"[{number}/{len(planned)}{clock.left}] {job.title}")
        with clock.measuring(job):
            _run_job(job)
        yield job


def comparison_jobs(comparison: Comparison, out: Path) -> Iterator[Job]:
    """Yield all jobs, each after those that it depends on.

    Text comes first, where most can be missing; then, by pretraining seed, all embeddings and their scores on masked
    tokens; then one task at a time, so that an interrupted run leaves whole tasks.
    """
    for language in comparison.recipe.languages:
        folders = LanguageDirs.under(out, language)
        yield from language_jobs(comparison.recipe, language, folders, records_failure=True)
    if any(_starts_from_text(arm) for arm in comparison.arms):
        source = comparison.recipe.source.language
        its = LanguageDirs.under(out, source)
        yield VectorsJob(
            recipe=comparison.recipe,
            language=source,
            blocks=its.blocks,
            tokenizer=its.tokenizer,
            out=vectors_dir(out),
            records_failure=True,
        )
    for part in comparison.by_seed().values():
        for primary in part.primaries:
            yield from _pretraining_jobs(primary, out, part.measures_alignment)
        for language in part.recipe.targets:
            for primary in part.primaries:
                yield from _initialisation_jobs(primary, language, out)
            for arm in _arms_adapting(part, language):
                models = _finetuned_models(part.primary(arm.primary), out)
                yield _adaptation_job(arm, language, out)
                for measure in (MASKED, ALIGNMENT) if part.measures_alignment else (MASKED,):
                    yield _language_evaluation(part, arm, models.restricted_to(measure), language, out)
        for task in part.tasks:
            yield from _task_jobs(part, task, out)


def _pretraining_jobs(primary: PlannedPrimary, out: Path, measures_alignment: bool) -> Iterator[Job]:
    source = LanguageDirs.under(out, primary.recipe.source.language)
    models = _finetuned_models(primary, out)
    yield jobs.pretraining(primary, source.blocks, source.tokenizer, models.primary)
    yield PrimaryEvaluation(**_source_fields(models.restricted_to(MASKED), out))
    if measures_alignment:
        yield ReferenceJob(**_source_fields(models.restricted_to(ALIGNMENT), out))
    for arm in primary.arms:
        if arm.recipe.builds_mini:
            yield jobs.mini_building(arm, models.primary, source.blocks, _mini_dir(arm, out))


def _initialisation_jobs(planned: PlannedPrimary, language: str, out: Path) -> Iterator[Job]:
    """Initial embeddings from each start, where adaptation cannot draw them itself."""
    target = LanguageDirs.under(out, language)
    for start in dict.fromkeys(arm.start for arm in planned.arms):
        if _starts_from_text(arm := planned.arm_with_start(start)) and language in arm.recipe.targets:
            yield jobs.initialisation(
                planned=planned,
                language=language,
                primary=_finetuned_models(planned, out).primary,
                blocks=target.blocks,
                tokenizer=target.tokenizer,
                vectors=vectors_dir(out),
                out=initial_dir(arm, language, out),
                start=start,
            )


def _adaptation_job(arm: Arm, language: str, out: Path) -> Job:
    target = LanguageDirs.under(out, language)
    return jobs.adaptation(
        arm=arm,
        language=language,
        primary=primary_dir(arm.primary, out),
        mini=_mini_dir(arm, out) if arm.recipe.builds_mini else None,
        blocks=target.blocks,
        tokenizer=target.tokenizer,
        out=adaptation_dir(arm, language, out),
        initial=[initial_dir(arm, language, out)] if _starts_from_text(arm) else [],
    )


def _language_evaluation(part: Comparison, arm: Arm, models: FinetunedModels, language: str, out: Path) -> Job:
    aligned = models.only == ALIGNMENT
    return ArmEvaluation(
        recipe=arm.recipe,
        arm=arm,
        models=models,
        dirs=LanguageDirs.under(out, language),
        curve=adaptation_dir(arm, language, out),
        language=language,
        reference=models.output_dir(evaluations_dir(arm.primary, out)) if aligned else None,
        only_ends=models.only in part.without_curves,
        out=models.output_dir(evaluations_dir(arm.name, out) / language),
    )


def _source_fields(models: FinetunedModels, out: Path) -> dict[str, Any]:
    """Fields of a job on a primary in the source language."""
    recipe = models.planned.recipe
    return {
        "recipe": recipe,
        "models": models,
        "dirs": LanguageDirs.under(out, recipe.source.language),
        "language": recipe.source.language,
        "out": models.output_dir(evaluations_dir(models.planned.name, out)),
    }


def _task_jobs(part: Comparison, task: Task, out: Path) -> Iterator[Job]:
    """Finetuning of every primary on one task, and all evaluations on it."""
    source = LanguageDirs.under(out, part.recipe.source.language)
    for primary in part.primaries:
        models = _finetuned_models(primary, out).restricted_to(task.name)
        for wanted in models.finetunings:
            yield jobs.finetuning(
                planned=primary, wanted=wanted, primary=models.primary, text=source.text, tasks=models.tasks
            )
        yield PrimaryEvaluation(**_source_fields(models, out))
    for language in filter(task.covers, part.recipe.targets):
        for arm in _arms_adapting(part, language):
            models = _finetuned_models(part.primary(arm.primary), out).restricted_to(task.name)
            yield _language_evaluation(part, arm, models, language, out)


def _arms_adapting(part: Comparison, language: str) -> list[Arm]:
    """Arms that adapt a language: a start may have resources for some of the languages only."""
    return [arm for arm in part.arms if language in arm.recipe.targets]


def _starts_from_text(arm: Arm) -> bool:
    return arm.recipe.adaptation.initialisation.needs_text


def vectors_dir(out: Path) -> Path:
    """Return the folder of the source's static vectors within the results."""
    return out / "vectors"


def primary_dir(name: str, out: Path) -> Path:
    """Return the folder of a primary within the results."""
    return out / "primary" / name


def initial_dir(arm: Arm, language: str, out: Path) -> Path:
    """Return the folder of the embeddings that an arm starts from, if its initialisation needs text."""
    return out / "initial" / (f"{arm.primary}-{arm.start}" if arm.start else arm.primary) / language


def evaluation_dir(arm: Arm, language: str, task: str, out: Path) -> Path:
    """Return the folder of an arm's evaluation on a task in a language."""
    return evaluations_dir(arm.name, out) / language / task


def adaptation_dir(arm: Arm, language: str, out: Path) -> Path:
    """Return the folder of an adaptation, with its checkpoints and its embeddings, within the results."""
    return out / "adaptation" / arm.name / language


def evaluations_dir(name: str, out: Path) -> Path:
    """Return the folder of all evaluations of an arm, or of a primary in the source language, by its name."""
    return out / "judged" / name


def _finetuned_models(primary: PlannedPrimary, out: Path) -> FinetunedModels:
    return FinetunedModels(primary, primary_dir(primary.name, out), out / "task" / primary.name)


def _mini_dir(arm: Arm, out: Path) -> Path:
    return out / "mini" / arm.name


def claim_in_turn(planned: Iterable[Job]) -> Iterator[Job]:
    """Yield every job, locked by this process until the next one is requested.

    The next job is the first that no other process is running and whose inputs are all done. Jobs that another process
    has done are yielded too, so that every process sees all results. A single process gets the jobs in the planned
    order.

    Args:
        planned: jobs, each after those that it depends on.
    """
    waiting = [*planned]
    announced = None
    while waiting:
        for _ in poll(_POLL_S):
            with ExitStack() as hold:
                job = next((one for one in _ready(waiting) if _try_lock(one.made, hold)), None)
                if job:
                    yield job
                    waiting.remove(job)
                    break
            if announced != waiting[0]:
                announced = waiting[0]
                say(f"waiting for another process: {announced.title}")


def _ready(waiting: Sequence[Job]) -> Iterator[Job]:
    to_come = {job.made for job in waiting}
    return (job for job in waiting if to_come.isdisjoint(job.inputs.values()))


def _try_lock(made: Path, hold: ExitStack) -> bool:
    """Try to lock a job's output until `hold` ends; return whether it succeeded."""
    with suppress(InUseError):
        hold.enter_context(folder_lock(made))
        return True
    return False


def _run_job(job: Job) -> None:
    """Run a job that is locked, unless it is done; a failed one is run again.

    An evaluation loses nothing but time, so it is run again wherever anything has changed or had failed.
    """
    clear_failure(job.made)
    with record_failure(job.made, job.title):
        if not job.bears_failed_inputs:
            require_inputs_made(job.inputs.values())
        if job.kind is Kind.EVALUATION and job.made.is_dir():
            standing = _existing_result(job)
            if standing is None or not standing.is_complete:
                shutil.rmtree(job.made)
        if not find_or_note(job.made, job.kind, job.provenance):
            job.make()


def existing_results(planned: Iterable[Job]) -> dict[Path, EvalResult]:
    """Return the existing evaluations of the plan, by folder, whichever process ran them."""
    return {job.made: found for job in planned if job.kind is Kind.EVALUATION and (found := _existing_result(job))}


def _existing_result(job: Job) -> EvalResult | None:
    try:
        if not failure_reason(job.made):
            require_same_provenance(job.made, job.provenance)
        return load_eval_result(job.made)
    except ArtifactError:
        return None


def _write_progress(comparison: Comparison, planned: Iterable[Job], out: Path) -> PaperRecords:
    records = merge_records(comparison, [*existing_results(planned).values()])
    write_text(out / RECORDS_FILE, records.model_dump_json(indent=2) + "\n")
    write_text(out / MARKDOWN_FILE, paper_report.markdown(records))
    return records


def _write_report(records: PaperRecords, out: Path) -> Artifact:
    """Write the report beside that of an earlier run, then replace it."""
    new = out.with_name(f".{out.name}-new")
    with explain_write_errors(out):
        shutil.rmtree(new, ignore_errors=True)
        paper_report.write(records, new)
        shutil.rmtree(out, ignore_errors=True)
        new.rename(out)
    return Artifact.load(out, Kind.REPORT)


def _say_missing(found: MissingCells, tables: Path) -> None:
    if found.missing or found.short:
        short = f", and {found.short} lack finetuning seeds" if found.short else ""
        say(
            f"{found.missing} of {found.planned} cells are missing{short}; {tables} says why. That is no error: run "
            "the same again to fill them."
        )


class _TimeEstimate:
    """Estimate of the time that the remaining jobs take, from finished jobs of the same kind."""

    def __init__(self, planned: Sequence[Job]) -> None:
        self._left = {job.made: job for job in planned}
        self._work: dict[Kind, float] = {}
        self._elapsed_s: dict[Kind, float] = {}

    @contextlib.contextmanager
    def measuring(self, job: Job) -> Iterator[None]:
        """Count a job as done, and measure its time if there was work to do."""
        there = job.made.exists()
        started = time.monotonic()
        yield
        del self._left[job.made]
        if not there:
            self._work[job.kind] = self._work.get(job.kind, 0.0) + job.work
            self._elapsed_s[job.kind] = self._elapsed_s.get(job.kind, 0.0) + time.monotonic() - started

    @property
    def left(self) -> str:
        """Remaining time as text for people; empty before anything is known."""
        known = [job for job in self._left.values() if self._work.get(job.kind)]
        if not known:
            return ""
        left_s = sum(job.work * self._elapsed_s[job.kind] / self._work[job.kind] for job in known)
        more = "" if len(known) == len(self._left) else " or more"
        return f", {_duration(left_s)}{more} left"


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"

"""A comparison on one machine, one job after another; an interrupted run resumes where it stopped.

Processes that run the same comparison into the same folder share its jobs.

A failed job leaves a missing cell, with its reason; it is tried again when the comparison resumes. Missing cells are no
error of the run: it succeeds, and reports how many there are.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.cache import find_or_note, require_same_provenance
from lingraft.artifacts.failures import clear_failure, failure_reason, record_failure, require_inputs_made
from lingraft.artifacts.locks import folder_lock
from lingraft.artifacts.manifest import Kind
from lingraft.comparison.jobs import comparison_jobs
from lingraft.comparison.page import HTML_FILE, html_page
from lingraft.comparison.plan import plan_comparison
from lingraft.comparison.records import RECORDS_FILE, EvaluatedCells, Records, merge_records
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.errors import ArtifactError, InUseError
from lingraft.jobs.job import Job
from lingraft.retry import poll
from lingraft.tables import counted

REPORT = "report"
"""Folder of the finished page and its records within the results."""
_POLL_S = 1.0


def run(recipe: Recipe, out: Path) -> Artifact:
    """Pretrain, finetune, adapt and evaluate everything in the recipe's [paper], and write the page.

    Each new evaluation updates `records.json`; the page is written at the end (`report/`).

    Args:
        recipe: recipe with a [paper] section.
        out: folder of all results; where it has results of an earlier run, only the missing ones are run.

    Raises:
        RecipeError: the recipe has no [paper], or a start in it does not fit.
        ProvenanceMismatchError: `out` has results that were trained from other settings.
        ArtifactError: `out` cannot be written.
        MissingExtraError: matplotlib or jinja2 is not installed.
    """
    comparison = plan_comparison(recipe)
    planned = [*comparison_jobs(comparison, out)]
    evaluations = [job for job in planned if job.kind is Kind.EVALUATION]
    for number, job in enumerate(claim_in_turn(planned), start=1):
        say(f"[{number}/{len(planned)}] {job.title}")
        _run_job(job)
        if job.kind is Kind.EVALUATION:
            found = [standing for each in evaluations if (standing := _existing_result(each))]
            merge_records(comparison, found).save(out / RECORDS_FILE)
    records = merge_records(comparison, [EvaluatedCells.load(job.made) for job in evaluations])
    with folder_lock(out / REPORT, wait=True):
        made = write_report(records, out / REPORT)
    if missing := sum(bool(cell.failed) for cell in records.cells):
        short = f", and {counted(len(records.lost), 'finetuning')}" if records.lost else ""
        say(
            f"{missing} of {len(records.cells)} cells are missing{short}; {made.folder / HTML_FILE} says why. That is "
            "no error: run the same again to fill them."
        )
    return made


def write_report(records: Records, out: Path) -> Artifact:
    """Write the page and its records as an artifact, in place of an earlier one."""
    new = out.with_name(f".{out.name}-new")
    shutil.rmtree(new, ignore_errors=True)
    with artifact.create(new, Kind.REPORT) as draft:
        (draft.folder / HTML_FILE).write_text(html_page(records), encoding="utf-8")
        records.save(draft.folder / RECORDS_FILE)
        draft.facts = {"language": records.source, "details": {"of": "paper", "title": records.title}}
    shutil.rmtree(out, ignore_errors=True)
    new.rename(out)
    return Artifact.load(out, Kind.REPORT)


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
        if job.kind is not Kind.EVALUATION:  # which has a result even if inputs failed
            require_inputs_made(job.inputs.values())
        elif job.made.is_dir():
            standing = _existing_result(job)
            if standing is None or not standing.is_complete:
                shutil.rmtree(job.made)
        if not find_or_note(job.made, job.kind, job.provenance):
            job.make()


def _existing_result(job: Job) -> EvaluatedCells | None:
    """Return the evaluation that there is from the same inputs, whichever process ran it."""
    try:
        if not failure_reason(job.made):
            require_same_provenance(job.made, job.provenance)
        return EvaluatedCells.load(job.made)
    except ArtifactError:
        return None

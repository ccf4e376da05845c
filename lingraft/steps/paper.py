"""The paper's comparison as pipeline steps; a failed step writes the reason to its folder, and the run goes on."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from lingraft import tracking
from lingraft.artifacts.files import atomic_folder
from lingraft.comparison.plan import plan_comparison
from lingraft.config.recipe import Recipe
from lingraft.jobs.job import Job, LanguageDirs, language_jobs, vectors
from lingraft.steps.run_job import run_or_record_failure, single_job
from lingraft.steps.step_io import Scores


def prepare_language(recipe: str, run: Path, language: str, text: Path, tokenizer: Path, blocks: Path) -> None:
    """Read a language's text, train its tokenizer, and pack its blocks."""
    for job in language_jobs(Recipe.parse(recipe), language, LanguageDirs(text, tokenizer, blocks)):
        run_or_record_failure(job, run)


@single_job
def pretrain(recipe: str, run: Path, name: str, blocks: Path, tokenizer: Path, out: Path) -> Scores:
    """Train one of the comparison's primaries, by its name."""
    from lingraft.comparison import jobs

    planned = plan_comparison(Recipe.parse(recipe)).primary(name)
    return run_or_record_failure(jobs.pretraining(planned, blocks, tokenizer, out), run)


@single_job
def build_vectors(recipe: str, run: Path, blocks: Path, tokenizer: Path, out: Path) -> Scores:
    """Compute static vectors of the source language's pieces."""
    settings = Recipe.parse(recipe)
    return run_or_record_failure(vectors(settings, settings.source, blocks, tokenizer, out), run)


@single_job
def build_mini(recipe: str, run: Path, arm: str, primary: Path, blocks: Path, out: Path) -> Scores:
    """Build the mini-model of an arm that has a step 1b."""
    from lingraft.comparison import jobs

    return run_or_record_failure(
        jobs.mini_building(plan_comparison(Recipe.parse(recipe)).arm(arm), primary, blocks, out), run
    )


@single_job
def finetune(recipe: str, run: Path, name: str, job: str, primary: Path, text: Path, out: Path) -> Scores:
    """Finetune a task from a primary with a seed, into the job's own subfolder of `out`."""
    from lingraft.comparison import jobs

    planned = plan_comparison(Recipe.parse(recipe)).primary(name)
    wanted = planned.finetuning(job)
    return run_or_record_failure(jobs.finetuning(planned, wanted, primary, text, wanted.path_in(out)), run)


def judge_source(
    recipe: str,
    run: Path,
    name: str,
    finetuned: Sequence[Path],
    primary: Path,
    text: Path,
    tokenizer: Path,
    blocks: Path,
    tasks: Path,
    out: Path,
) -> Scores:
    """Gather a primary's finetuned models in one folder, `tasks`, and evaluate them in the source language."""
    from lingraft.comparison import evaluate

    gather(finetuned, tasks)
    planned = plan_comparison(Recipe.parse(recipe)).primary(name)
    bodies = evaluate.FinetunedModels(planned, primary, tasks)
    source = LanguageDirs(text, tokenizer, blocks)
    return _evaluate(evaluate.source_evaluation(bodies, source, out / planned.name), run)


@single_job
def initialise(
    recipe: str,
    run: Path,
    name: str,
    language: str,
    primary: Path,
    blocks: Path,
    tokenizer: Path,
    vectors: Path,
    out: Path,
) -> Scores:
    """Write a language's embeddings at update 0 for one of the comparison's primaries."""
    from lingraft.comparison import jobs

    planned = plan_comparison(Recipe.parse(recipe)).primary(name)
    return run_or_record_failure(jobs.initialisation(planned, language, primary, blocks, tokenizer, vectors, out), run)


@single_job
def adapt(
    recipe: str,
    run: Path,
    arm: str,
    language: str,
    primary: Path,
    blocks: Path,
    tokenizer: Path,
    out: Path,
    mini: Path | None = None,
    initial: Sequence[Path] = (),
) -> Scores:
    """Learn a language's embeddings in one arm, with checkpoints; `initial` has at most one folder."""
    from lingraft.comparison import jobs

    planned = plan_comparison(Recipe.parse(recipe)).arm(arm)
    return run_or_record_failure(
        jobs.adaptation(planned, language, primary, mini, blocks, tokenizer, out, *initial), run
    )


def judge_language(
    recipe: str,
    run: Path,
    arm: str,
    language: str,
    primary: Path,
    tasks: Path,
    curve: Path,
    text: Path,
    tokenizer: Path,
    blocks: Path,
    out: Path,
) -> Scores:
    """Evaluate every checkpoint of a language in one arm, and return the final scores."""
    from lingraft.comparison import evaluate

    comparison = plan_comparison(Recipe.parse(recipe))
    planned = comparison.arm(arm)
    bodies = evaluate.FinetunedModels(comparison.primary(planned.primary), primary, tasks)
    target = LanguageDirs(text, tokenizer, blocks)
    return _evaluate(evaluate.language_evaluation(planned, bodies, target, curve, language, out / arm / language), run)


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

    def tracked() -> None:
        with tracking.stage(run.read_text(), job.name) as stage:
            made = job.make(job.out, stage.watch)  # never from the cache: parts that failed before may succeed now
            stage.record(made, final_scores(load_eval_result(made.folder)))

    job.attempt(tracked)
    return final_scores(load_eval_result(job.made))

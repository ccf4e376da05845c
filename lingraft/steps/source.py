"""Once per primary: pretraining, step 1b, finetuning, judging, registration."""

from collections.abc import Sequence
from pathlib import Path

from lingraft import jobs, tracking
from lingraft.artifact import Artifact, Kind
from lingraft.config import Recipe
from lingraft.registered import mini_name, primary_name, task_name
from lingraft.results import load_source
from lingraft.steps.doing import do, one_job
from lingraft.steps.facts import Judgement, Scores, confusion_of, merit_of, task_folders


@one_job
def pretrain(recipe: str, run: Path, blocks_folder: Path, tokenizer_folder: Path, out: Path) -> Scores:
    """Train the primary."""
    return do(jobs.pretraining(Recipe.parse(recipe), blocks_folder, tokenizer_folder, out), run)


@one_job
def build_mini(recipe: str, run: Path, primary: Path, blocks_folder: Path, out: Path) -> Scores:
    """Build and register the mini-model of systems that have a step 1b."""
    settings = Recipe.parse(recipe)

    def register(made: Artifact, stage: tracking.StageRun) -> None:
        depth = made.manifest.details["depth"]
        tracking.register(mini_name(settings), made.folder, Kind.MINI, stage, {"depth": depth})

    return do(jobs.mini_building(settings, primary, blocks_folder, out), run, register=register)


def finetunings(recipe: Recipe) -> list[str]:
    """Every task with every seed, as one word each (`<task>/<seed>`), to be finetuned side by side."""
    return [f"{task.name}/{seed}" for task in recipe.tasks for seed in task.finetuning.seeds]


@one_job
def finetune(recipe: str, run: Path, job: str, primary: Path, text_folder: Path, out: Path) -> Scores:
    """Finetune one task in the source language with one seed; `job` is one of `finetunings`."""
    task, seed = job.rsplit("/", 1)
    wanted = jobs.finetuning(Recipe.parse(recipe), task, int(seed), primary, text_folder, out)
    return do(wanted, run, lambda made: {"dev_score": float(made.manifest.details["dev_score"])})


def evaluate_source(
    recipe: str, run: Path, primary: Path, tasks: Sequence[Path], text_folder: Path, blocks_folder: Path, out: Path
) -> Judgement:
    """Judge the source language."""
    from lingraft.evaluation import evaluate_source as evaluate

    with tracking.stage(run.read_text(), "evaluate-source") as stage:
        made = evaluate(Recipe.parse(recipe), primary, tasks, text_folder, blocks_folder, out)
        result = load_source(out)
        scores = {f"masked_accuracy_depth_{depth}": score for depth, score in result.masked_by_depth.items()}
        scores |= {f"{task.name}_{task.metric}": task.score.mean for task in result.tasks}
        stage.record(made, scores, result.pretraining)
    return scores, *confusion_of(result.tasks)


def register_source(recipe: str, run: Path, primary: Path, tasks: Sequence[Path], evaluation: Path) -> None:
    """Register the primary and its finetuned tasks: each seed under its own alias, the best on dev as champion."""
    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "register-source") as stage:
        result = load_source(evaluation)
        stage.keep(Artifact.load(evaluation, Kind.EVALUATION), "evaluation")
        scores = {f"masked_accuracy_depth_{depth}": score for depth, score in result.masked_by_depth.items()}
        evidence = {"evaluation_run": stage.run_id, "recipe": settings.digest(), **scores}
        tracking.register(primary_name(settings), primary, Kind.PRIMARY, stage, evidence)
        for folder in sorted(tasks, key=merit_of):
            (score, seed), name = merit_of(folder), Artifact.load(folder, Kind.TASK).manifest.details["task"]
            aliases, facts = (f"seed-{seed}", tracking.CHAMPION), {"seed": seed, "dev_score": score}
            tracking.register(task_name(settings, name), folder, Kind.TASK, stage, facts, aliases)
    tracking.close_run(run.read_text())


def fetch_source(recipe: str, run: Path, primary: Path, tasks: Path, evaluation: Path, mini: Path) -> None:
    """Bring the registered primary, its tasks (`<task>/seed-<seed>`), evaluation and mini-model to folders.

    The folder `mini` stays empty where the recipe's system has no step 1b.
    """
    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "fetch-source"):
        tracking.fetch(primary_name(settings), Kind.PRIMARY, primary)
        evidence = tracking.tags_of(primary_name(settings))
        tracking.fetch_kept(evidence["evaluation_run"], "evaluation", Kind.EVALUATION, evaluation)
        for folder in (tasks, mini):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in task_folders(settings, tasks):
            tracking.fetch(task_name(settings, folder.parent.name), Kind.TASK, folder, alias=folder.name)
        if settings.builds_mini:
            tracking.fetch(mini_name(settings), Kind.MINI, mini)

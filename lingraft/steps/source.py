"""Steps that run once for each primary: import, evaluation, registration, and the way back from the registry."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.cache import RESULTS_VARIABLE, shared_result
from lingraft.artifacts.manifest import MANIFEST, Kind
from lingraft.artifacts.names import SEED, mini_name, primary_name, task_name
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.data.languages import language_name, name_and_tag, quoted
from lingraft.errors import RecipeError
from lingraft.jobs.evaluation import SourceDirs, SourceEvaluationJob
from lingraft.source_model import open_model
from lingraft.stages.results import SourceResult, load_source
from lingraft.steps.run_job import (
    Scores,
    ScoresAndConfusion,
    confusion_of,
    recalls,
    require_champion,
)
from lingraft.tasks.dev_score import dev_score_and_seed
from lingraft.tracking.evidence import EVALUATION, EVALUATION_RUN
from lingraft.tracking.promotion import stale_champions
from lingraft.tracking.source import VECTORS, VECTORS_RUN, download_source
from lingraft.tracking.versions import versions_of


def import_model(recipe: str, run: Path, primary: Path, task: Path) -> None:
    """Make the primary from the recipe's model; the folder `task` stays empty unless it is an embedding model.

    Raises:
        RecipeError: the recipe has a task that is neither finetuned nor the model's own.
        LingraftError: the model cannot be had; see `open_model`.
    """
    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "import-model") as stage:
        found = open_model(settings.source)
        made = Artifact.load(found.primary, Kind.PRIMARY)
        brought = [Artifact.load(folder, Kind.TASK) for folder in filter(None, [found.task])]
        _require_own([each.manifest.detail("task", str) for each in brought], settings)
        made.copy_to(primary)
        if where := os.environ.get(
            RESULTS_VARIABLE
        ):  # which have all else that a run makes, and a pretrained primary, too
            with shared_result(where, Kind.PRIMARY, {"imported": made.fingerprint}) as (result, kept):
                if kept is None:
                    made.copy_to(result)
        for each in brought:
            each.copy_to(task)
        stage.record(made, {})


def _require_own(brought: Sequence[str], recipe: Recipe) -> None:
    wanted = [task.name for task in recipe.tasks if task.is_imported]
    if unknown := sorted({*wanted} - {*brought}):
        raise RecipeError(
            f"tasks {unknown} of kind 'retrieval' have no train and dev, and {recipe.source.model} has no such task, "
            f"but {[*brought]}. Name them so, or add train and dev."
        )


def evaluate_source(job: SourceEvaluationJob, run: Path) -> ScoresAndConfusion:
    """Evaluate the source language."""
    with tracking.stage(run.read_text(), job.name) as stage:
        made = job.get_or_make()
        result = load_source(job.out)
        scores = _scores(result)
        stage.record(made, scores | recalls(result.tasks))
    return scores, *confusion_of(result.tasks)


def _scores(result: SourceResult) -> Scores:
    scores = _masked_scores(result) | {f"{task.name}_{task.metric}": task.score.mean for task in result.tasks}
    return scores | {f"{task.name}_{name}": each.mean for task in result.tasks for name, each in task.others.items()}


def _masked_scores(result: SourceResult) -> Scores:
    return {f"masked_accuracy_depth_{depth}": score for depth, score in result.masked_by_depth.items()}


def register_source(
    recipe: str,
    run: Path,
    primary: Path,
    tasks: Sequence[Path],
    evaluation: Path,
    vectors: Sequence[Path] = (),
    imported: Path | None = None,
) -> None:
    """Register the primary and its tasks, each seed under its own alias, and make the new ones champions.

    So is the task that `imported` holds, if the primary's model has brought one. The run stores the evaluation and, if
    `vectors` names a folder, the source's static vectors; tags of the primary name the run. The best
    seed on dev is the champion of a task. A message names the languages that were adapted to another primary, and must
    be adapted again.
    """
    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "register-source") as stage:
        result = load_source(evaluation)
        stage.log_artifact(Artifact.load(evaluation, Kind.EVALUATION), EVALUATION)
        common = {"recipe": settings.digest(), "system": settings.system}
        evidence = {EVALUATION_RUN: stage.run_id, "depth": settings.encoder.layers, **common, **_masked_scores(result)}
        for folder in vectors:
            stage.log_artifact(Artifact.load(folder, Kind.VECTORS), VECTORS)
            evidence |= {VECTORS_RUN: stage.run_id}
        champions = {
            primary_name(settings): tracking.register(primary_name(settings), primary, Kind.PRIMARY, stage, evidence)
        }
        own = [imported] if imported and (imported / MANIFEST).is_file() else []
        made = [Artifact.load(folder, Kind.TASK) for folder in (*tasks, *own)]
        for each in sorted(made, key=lambda task: dev_score_and_seed(task.manifest.details)):
            (score, seed) = dev_score_and_seed(each.manifest.details)
            facts = {"seed": seed, "dev_score": score, **common}
            model = task_name(settings, each.manifest.detail("task", str))
            champions[model] = tracking.register(
                model, each.folder, Kind.TASK, stage, facts, aliases=(f"{SEED}{seed}",)
            )
        mark = Artifact.load(primary, Kind.PRIMARY).fingerprint
        if settings.builds_mini:
            champions |= _mini_version(stage, mini_name(settings), mark)
        for model, version in champions.items():
            require_champion(stage, model, version)
        left = stale_champions(stage.client, settings.name, mark)
        if stale := [each.tags["language"] for each in left if each.kind == Kind.EMBEDDINGS]:
            say(f"These languages belong to another primary, and must be adapted again: {quoted(stale)}.")
        _describe(stage, run.read_text(), result, champions, stale)
    tracking.close_run(run.read_text())


def _describe(
    stage: tracking.StageRun, parent: str, result: SourceResult, champions: Mapping[str, int], stale: Sequence[str]
) -> None:
    """Describe the pipeline's run by the primary's scores and the registered versions."""
    scores = _scores(result)
    language = name_and_tag(result.language)
    found = ", ".join(f"{name} {score:.1%}" for name, score in scores.items())
    again = [f"To be adapted again to this primary: {', '.join(map(name_and_tag, stale))}."] if stale else []
    models = [f"- `{model}` version {version}" for model, version in champions.items()]
    note = [
        f"**A primary of {result.layers} layers in {language}**: {found}.",
        *again,
        "Champions now:",
        "\n".join(models),
    ]
    name = f"source: {language_name(result.language)}"
    tracking.describe(stage.client, parent, name, "\n\n".join(note), scores)


def _mini_version(stage: tracking.StageRun, name: str, primary: str) -> dict[str, int]:
    """Return the version of the mini-model that this pipeline built for a primary; the last one of several."""
    built = [each for each in versions_of(stage.client, name) if each.primary == primary]
    return {name: built[-1].number} if built else {}


def fetch_source(
    recipe: str, run: Path, primary: Path, tasks: Path, evaluation: Path, mini: Path, vectors: Path
) -> None:
    """Download the registered primary, its tasks (`<task>/seed-<seed>`), evaluation, mini-model and static vectors.

    The folder `mini` stays empty if the recipe's system has no step 1b, and `vectors` if its initialisation needs none.

    Raises:
        NotRegisteredError: there is no primary, or nothing of a task, the mini-model or vectors that belongs to it.
        TrackingError: the registry refuses, or stays down.
    """
    folders = SourceDirs(primary=primary, tasks=tasks, evaluation=evaluation, mini=mini, vectors=vectors)
    with tracking.stage(run.read_text(), "fetch-source") as stage:
        download_source(stage.client, Recipe.parse(recipe), folders)

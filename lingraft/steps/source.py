"""Steps that run once for each primary: evaluation, registration, and the way back from the registry."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.artifacts.names import mini_name, primary_name, task_name
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.data.languages import language_name, name_and_tag
from lingraft.errors import NotRegisteredError
from lingraft.jobs.job import SourceEvaluationJob
from lingraft.stages.results import SourceResult, load_source
from lingraft.steps.promote import require_champion
from lingraft.steps.run_job import Scores
from lingraft.steps.step_io import ScoresAndConfusion, confusion_of, dev_score_and_seed, recalls, task_folders
from lingraft.tracking.promotion.evidence import EVALUATION, EVALUATION_RUN
from lingraft.tracking.promotion.promote import languages_to_readapt
from lingraft.tracking.versions import Version, champion_of, download, versions_of

_VECTORS = "vectors"
"""Name of the source's static vectors among the artifacts of the register step's run."""
_VECTORS_RUN = "vectors_run"
"""Tag of a registered primary with the id of the run that has its static vectors."""
_SEED = "seed-"
"""Prefix of a task's folder and alias; the seed follows."""


def evaluate_source(job: SourceEvaluationJob, run: Path) -> ScoresAndConfusion:
    """Evaluate the source language."""
    with tracking.stage(run.read_text(), job.name) as stage:
        made = job.make()
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
    recipe: str, run: Path, primary: Path, tasks: Sequence[Path], evaluation: Path, vectors: Sequence[Path] = ()
) -> None:
    """Register the primary and its finetuned tasks, each seed under its own alias, and make the new ones champions.

    The run stores the evaluation and, if `vectors` names a folder, the source's static vectors; tags of the primary
    name the run. The best seed on dev is the champion of a task. A message names the languages that were adapted to
    another primary, and must be adapted again.
    """
    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "register-source") as stage:
        result = load_source(evaluation)
        stage.log_artifact(Artifact.load(evaluation, Kind.EVALUATION), EVALUATION)
        common = {"recipe": settings.digest(), "system": settings.system}
        evidence = {EVALUATION_RUN: stage.run_id, "depth": settings.encoder.layers, **common, **_masked_scores(result)}
        for folder in vectors:
            stage.log_artifact(Artifact.load(folder, Kind.VECTORS), _VECTORS)
            evidence |= {_VECTORS_RUN: stage.run_id}
        champions = {
            primary_name(settings): tracking.register(primary_name(settings), primary, Kind.PRIMARY, stage, evidence)
        }
        for folder in sorted(tasks, key=dev_score_and_seed):
            (score, seed) = dev_score_and_seed(folder)
            name = Artifact.load(folder, Kind.TASK).manifest.detail("task", str)
            facts = {"seed": seed, "dev_score": score, **common}
            model = task_name(settings, name)
            champions[model] = tracking.register(model, folder, Kind.TASK, stage, facts, aliases=(f"{_SEED}{seed}",))
        mark = Artifact.load(primary, Kind.PRIMARY).fingerprint
        if settings.builds_mini:
            champions |= _mini_version(stage, mini_name(settings), mark)
        for model, version in champions.items():
            require_champion(stage, model, version)
        if stale := languages_to_readapt(stage.client, settings.name, mark):
            say(f"These languages belong to another primary, and must be adapted again: {', '.join(stale)}.")
        _describe(stage, run.read_text(), result, champions, stale)
    tracking.close_run(run.read_text())


def _describe(
    stage: tracking.StageRun, parent: str, result: SourceResult, champions: Mapping[str, str], stale: Sequence[str]
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


def _mini_version(stage: tracking.StageRun, name: str, primary: str) -> dict[str, str]:
    """Return the version of the mini-model that this pipeline built for a primary; the last one of several."""
    built = [each for each in versions_of(stage.client, name) if each.tags.get("aligned_with") == primary]
    return {name: str(built[-1].number)} if built else {}


def fetch_source(
    recipe: str, run: Path, primary: Path, tasks: Path, evaluation: Path, mini: Path, vectors: Path
) -> None:
    """Download the registered primary, its tasks (`<task>/seed-<seed>`), evaluation, mini-model and static vectors.

    Only the primary's alias decides: all else is chosen to fit that primary, wherever other aliases point. A source
    that is only half registered, or whose primary was rolled back, is thus never mixed with another. The folder `mini`
    stays empty if the recipe's system has no step 1b, and `vectors` if its initialisation needs none.

    Raises:
        NotRegisteredError: there is no primary, or nothing of a task, the mini-model or vectors that belongs to it.
        TrackingError: the registry refuses, or stays down.
    """
    settings = Recipe.parse(recipe)
    with tracking.stage(run.read_text(), "fetch-source") as stage:
        champion = _champion(stage, primary_name(settings))
        client = stage.client
        if EVALUATION_RUN not in champion.tags:
            raise NotRegisteredError(
                f"{champion.title} was registered without its evaluation. Run the source pipeline, which judges it, or "
                "add languages by `lingraft add-language` and `lingraft registry add`."
            )
        mark = download(client, champion, Kind.PRIMARY, primary).fingerprint
        tracking.fetch_run_artifact(champion.tags[EVALUATION_RUN], EVALUATION, Kind.EVALUATION, evaluation)
        for folder in (tasks, mini, vectors):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in task_folders(settings, tasks):
            name = task_name(settings, folder.parent.name)
            seed = folder.name.removeprefix(_SEED)
            download(client, _version_of_primary(stage, name, mark, folder.name, seed=seed), Kind.TASK, folder)
        if settings.builds_mini:
            download(client, _version_of_primary(stage, mini_name(settings), mark, tracking.CHAMPION), Kind.MINI, mini)
        if settings.adaptation.initialisation.needs_text:
            _fetch_vectors(champion, settings, vectors)


def _fetch_vectors(primary: Version, recipe: Recipe, out: Path) -> None:
    if _VECTORS_RUN not in primary.tags:
        raise NotRegisteredError(
            f"{primary.title} was registered without the source's static vectors, which initialisation "
            f"'{recipe.adaptation.initialisation}' needs. Run the source pipeline with this recipe: it computes them."
        )
    tracking.fetch_run_artifact(primary.tags[_VECTORS_RUN], _VECTORS, Kind.VECTORS, out)


def _champion(stage: tracking.StageRun, name: str) -> Version:
    champion = champion_of(stage.client, name)
    if champion is None:
        raise NotRegisteredError(f"the registry has no champion of {name!r}. Run the source pipeline first.")
    return champion


def _version_of_primary(stage: tracking.StageRun, name: str, primary: str, alias: str, **tags: str) -> Version:
    """Return the version of a primary that an alias points at, else the last version of that primary."""
    wanted = {"aligned_with": primary, **tags}
    fitting = [each for each in versions_of(stage.client, name) if wanted.items() <= each.tags.items()]
    if not fitting:
        raise NotRegisteredError(f"the registry has no {name!r} with {wanted}. Run the source pipeline again.")
    return next((each for each in fitting if alias in each.aliases), fitting[-1])

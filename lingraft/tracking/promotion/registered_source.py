"""The registered source of a project: its primary, and all that belongs to that primary, downloaded to folders."""

from functools import partial
from pathlib import Path

import mlflow
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from lingraft.artifacts.files import atomic_folder, write_text
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import SEED, mini_name, primary_name, primary_of, task_folders, task_name
from lingraft.config.recipe import Recipe
from lingraft.errors import NotRegisteredError
from lingraft.jobs.evaluation import SOURCE_RECIPE, SourceDirs
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.promotion.evidence import EVALUATION, EVALUATION_RUN
from lingraft.tracking.runs import RECIPE_FILE
from lingraft.tracking.versions import CHAMPION, Version, champion_of, download, download_run_artifact, versions_of

VECTORS = "vectors"
"""Name of the source's static vectors among the artifacts of the register step's run."""
VECTORS_RUN = "vectors_run"
"""Tag of a registered primary with the id of the run that has its static vectors."""


def download_source(client: RetryingClient, recipe: Recipe, out: SourceDirs) -> None:
    """Download the registered primary, its tasks, evaluation, mini-model and static vectors to new folders.

    Only the primary's alias decides: all else is chosen to fit that primary, wherever other aliases point. A source
    that is only half registered, or whose primary was rolled back, is thus never mixed with another.

    Raises:
        NotRegisteredError: there is no primary, or nothing of a task, the mini-model or vectors that belongs to it.
    """
    champion = primary_champion(client, primary_name(recipe))
    evaluation_run = _evaluation_run(champion)
    mark = download(client, champion, Kind.PRIMARY, out.primary).fingerprint
    download_run_artifact(client, evaluation_run, EVALUATION, Kind.EVALUATION, out.evaluation)
    for folder in (out.tasks, out.mini, out.vectors):
        folder.mkdir(parents=True, exist_ok=True)
    for folder in task_folders(recipe, out.tasks):
        name, seed = task_name(recipe, folder.parent.name), folder.name.removeprefix(SEED)
        download(client, _version_of_primary(client, name, mark, folder.name, seed=seed), Kind.TASK, folder)
    if recipe.builds_mini:
        download(client, _version_of_primary(client, mini_name(recipe), mark, CHAMPION), Kind.MINI, out.mini)
    if recipe.needs_vectors:
        _download_vectors(client, champion, recipe, out.vectors)


def download_project(client: RetryingClient, project: str, out: Path) -> None:
    """Download a project's source to a new folder, and beside it the recipe that registered it.

    Raises:
        NotRegisteredError: there is no primary, or something that belongs to it is missing.
        ArtifactError: the folder cannot be written.
    """
    recipe = _recipe_of(client, primary_champion(client, primary_of(project)))
    with atomic_folder(out) as folder:
        download_source(client, recipe, SourceDirs.under(folder))
        write_text(folder / SOURCE_RECIPE, recipe.to_json())


def primary_champion(client: RetryingClient, name: str) -> Version:
    """Return the champion of a primary's model.

    Raises:
        NotRegisteredError: it has none.
    """
    champion = champion_of(client, name)
    if champion is None:
        raise NotRegisteredError(f"the registry has no champion of {name!r}. Run the source pipeline first.")
    return champion


def _evaluation_run(primary: Version) -> str:
    if EVALUATION_RUN not in primary.tags:
        raise NotRegisteredError(
            f"{primary.title} was registered without its evaluation. Run the source pipeline, which judges it, or "
            "add languages by `lingraft add-language` and `lingraft registry add`."
        )
    return primary.tags[EVALUATION_RUN]


def _recipe_of(client: RetryingClient, primary: Version) -> Recipe:
    stage = client.call(partial(mlflow.MlflowClient().get_run, _evaluation_run(primary)))
    pipeline = client.call(partial(mlflow.MlflowClient().get_run, stage.data.tags[MLFLOW_PARENT_RUN_ID]))
    uri = f"{pipeline.info.artifact_uri}/{RECIPE_FILE}"
    return Recipe.parse(client.call(partial(mlflow.artifacts.load_dict, uri)), f"the recipe of {primary.title}")


def _download_vectors(client: RetryingClient, primary: Version, recipe: Recipe, out: Path) -> None:
    if VECTORS_RUN not in primary.tags:
        raise NotRegisteredError(
            f"{primary.title} was registered without the source's static vectors, which initialisation "
            f"'{recipe.adaptation.initialisation}' needs. Run the source pipeline with this recipe: it computes them."
        )
    download_run_artifact(client, primary.tags[VECTORS_RUN], VECTORS, Kind.VECTORS, out)


def _version_of_primary(client: RetryingClient, name: str, primary: str, alias: str, **tags: str) -> Version:
    """Return the version of a primary that an alias points at, else the last version of that primary."""
    wanted = {"aligned_with": primary, **tags}
    fitting = [each for each in versions_of(client, name) if wanted.items() <= each.tags.items()]
    if not fitting:
        raise NotRegisteredError(f"the registry has no {name!r} with {wanted}. Run the source pipeline again.")
    return next((each for each in fitting if alias in each.aliases), fitting[-1])

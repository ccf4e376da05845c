"""The registered source of a project: its primary, and all that belongs to that primary, downloaded to folders."""

from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from lingraft.artifacts.files import atomic_folder, write_text
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import SEED, mini_name, primary_name, primary_of, task_folders, task_name
from lingraft.config.recipe import Recipe
from lingraft.errors import NotRegisteredError
from lingraft.jobs.evaluation import SOURCE_RECIPE, SourceDirs
from lingraft.tracking.client import mlflow_errors
from lingraft.tracking.evidence import EVALUATION, EVALUATION_RUN
from lingraft.tracking.runs import RECIPE_FILE
from lingraft.tracking.versions import CHAMPION, Version, download, fetch_run_artifact, require_alias, versions_of

VECTORS = "vectors"
"""Name of the source's static vectors among the artifacts of the register step's run."""
VECTORS_RUN = "vectors_run"
"""Tag of a registered primary with the id of the run that has its static vectors."""


def download_source(client: MlflowClient, recipe: Recipe, out: SourceDirs) -> None:
    """Download the registered primary, its tasks, evaluation, mini-model and static vectors to new folders.

    Only the primary's alias decides: all else is chosen to fit that primary, wherever other aliases point. A source
    that is only half registered, or whose primary was rolled back, is thus never mixed with another.
    """
    champion = require_alias(client, primary_name(recipe))
    evaluation_run = _run_of(champion, EVALUATION_RUN, "its evaluation")
    mark = download(champion, Kind.PRIMARY, out.primary).fingerprint
    fetch_run_artifact(evaluation_run, EVALUATION, Kind.EVALUATION, out.evaluation)
    for folder in (out.tasks, out.mini, out.vectors):
        folder.mkdir(parents=True, exist_ok=True)
    for folder in task_folders(recipe, out.tasks):
        name, seed = task_name(recipe, folder.parent.name), folder.name.removeprefix(SEED)
        download(_version_of_primary(client, name, mark, folder.name, seed=seed), Kind.TASK, folder)
    if recipe.builds_mini:
        download(_version_of_primary(client, mini_name(recipe), mark, CHAMPION), Kind.MINI, out.mini)
    if recipe.needs_vectors:
        run = _run_of(
            champion,
            VECTORS_RUN,
            f"the source's static vectors, which initialisation '{recipe.adaptation.initialisation}' needs",
        )
        fetch_run_artifact(run, VECTORS, Kind.VECTORS, out.vectors)


def download_project(client: MlflowClient, project: str, out: Path) -> None:
    """Download a project's source to a new folder, and beside it the recipe that registered it."""
    champion = require_alias(client, primary_of(project))
    stage = client.get_run(_run_of(champion, EVALUATION_RUN, "its evaluation"))
    pipeline = client.get_run(stage.data.tags[MLFLOW_PARENT_RUN_ID])
    with mlflow_errors():
        found = mlflow.artifacts.load_dict(f"{pipeline.info.artifact_uri}/{RECIPE_FILE}")
    recipe = Recipe.parse(found, f"the recipe of {champion.title}")
    with atomic_folder(out) as folder:
        download_source(client, recipe, SourceDirs.under(folder))
        write_text(folder / SOURCE_RECIPE, recipe.to_json())


def _run_of(primary: Version, tag: str, what: str) -> str:
    """Return the run that a tag of a primary names."""
    if tag not in primary.tags:
        raise NotRegisteredError(
            f"{primary.title} was registered without {what}. Run the source pipeline with this recipe, which makes and "
            "registers it."
        )
    return primary.tags[tag]


def _version_of_primary(client: MlflowClient, name: str, primary: str, alias: str, **tags: str) -> Version:
    """Return the version of a primary that an alias points at, else the last version of that primary."""
    wanted = {"aligned_with": primary, **tags}
    fitting = [each for each in versions_of(client, name) if wanted.items() <= each.tags.items()]
    if not fitting:
        raise NotRegisteredError(f"the registry has no {name!r} with {wanted}. Run the source pipeline again.")
    return next((each for each in fitting if alias in each.aliases), fitting[-1])

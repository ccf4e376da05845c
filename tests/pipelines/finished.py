"""A recipe for pipelines that tests run on this machine, and where to look at what they left."""

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from tests.made_up import write

TINY = Path(__file__).parents[1] / "tiny.toml"


def tiny(folder: Path, **changes: Any) -> Recipe:
    """The tiny recipe on text of its own, with changes; two languages or seeds at once.

    German's depth is searched among those that are not the recipe's own, so that what is chosen cannot be the default.
    """
    recipe = Recipe.load(TINY)
    recipe = recipe.with_folder(write(folder / "text", recipe.languages))
    search = recipe.require_search().model_copy(update={"depths": (2, 3)})
    cluster = recipe.cluster.model_copy(update={"parallel_languages": 2})
    return recipe.model_copy(update={"search": search, "cluster": cluster, **changes})


@dataclass(frozen=True)
class Finished:
    """What pipelines left behind."""

    folder: Path
    recipe: Recipe
    uri: str

    @property
    def client(self) -> MlflowClient:
        """MLflow on the store that the runs made."""
        return MlflowClient(self.uri)

    def runs(self, which: int = -1) -> dict[str, tuple[Run, dict[str, Run]]]:
        """Each pipeline's run, the last one if it ran several times, and the runs of its stages by name."""
        return runs_of(self.client, self.recipe.name, which)

    def stage(self, pipeline: str, name: str) -> Run:
        """The run of a stage."""
        return self.runs()[pipeline][1][name]

    def champion(self, model: str) -> ModelVersion:
        """The champion of a registered model, by the model's name without the project's."""
        return self.client.get_model_version_by_alias(f"{self.recipe.name}-{model}", "champion")

    def made(self, pipeline: str, step: str, name: str) -> list[dict[str, Any]]:
        """A step's output artifacts in a pipeline's last run, as KFP was told of them, one a time that it ran."""
        [*_, root] = sorted((self.folder / "runs").glob(f"{self.recipe.name}-{pipeline}-*"))
        files = sorted(root.glob(f"**/{step}/executor_output.json"))
        told = [json.loads(file.read_text(encoding="utf-8"))["artifacts"][name]["artifacts"] for file in files]
        return [artifact for artifacts in told for artifact in artifacts]

    def artifacts(self, pipeline: str, step: str, name: str, kind: Kind) -> list[Artifact]:
        """The same as artifacts of ours, verified."""
        return [Artifact.load(Path(made["uri"]), kind) for made in self.made(pipeline, step, name)]


def runs_of(client: MlflowClient, project: str, which: int = -1) -> dict[str, tuple[Run, dict[str, Run]]]:
    """Each pipeline's run in a project's experiment, and the runs of its stages by name.

    Args:
        client: of the store.
        project: name of the recipe.
        which: of a pipeline's runs, in the order in which they began.
    """
    experiment = client.get_experiment_by_name(project)
    assert experiment
    pipelines, stages = defaultdict(list), defaultdict(list)
    for run in client.search_runs([experiment.experiment_id], max_results=1000, order_by=["start_time ASC"]):
        parent = run.data.tags.get(MLFLOW_PARENT_RUN_ID)
        (stages[parent] if parent else pipelines[run.data.tags["pipeline"]]).append(run)
    chosen = {name: runs[which] for name, runs in pipelines.items()}
    found = {name: (run, stages[run.info.run_id]) for name, run in chosen.items()}
    return {name: (run, _by_name(its)) for name, (run, its) in found.items()}


def _by_name(stages: list[Run]) -> dict[str, Run]:
    """The runs of stages; a stage that was killed has another one for its next attempt."""
    found: dict[str, Run] = {}
    for run in stages:
        before = found.get(run.info.run_name)
        assert before is None or before.info.status != "FINISHED"
        found[run.info.run_name] = run
    return found

"""The three pipelines, run on this machine on text that the tests make, and where to look at what they left."""

import contextlib
import io
import json
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest import mock

from kfp import compiler, components
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from lingraft.artifact import Artifact, Kind
from lingraft.config import Recipe
from pipelines import build, local
from tests.made_up import write
from tests.pipelines.made_up_tasks import tasks

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
    """What the pipelines left behind."""

    folder: Path
    recipe: Recipe
    uri: str
    screen: str
    """What a person saw meanwhile."""
    outputs: dict[str, Any]
    """Of the language pipeline."""

    @classmethod
    def run(cls, folder: Path) -> Self:
        """Run all three, with all kinds of bundles; the source pipeline from compiled YAML, as a cluster gets it."""
        recipe, out, screen = tiny(folder), folder / "out", io.StringIO()
        others = tasks(folder / "tasks", recipe.languages)
        recipe = Recipe.parse(
            recipe.model_copy(update={"tasks": recipe.tasks + others, "serve_primary": True}).to_json()
        )
        compiled = str(folder / "source.yaml")
        compiler.Compiler().compile(build.source_pipeline(recipe), compiled)
        with mock.patch.dict(os.environ), contextlib.redirect_stdout(screen):
            os.environ.pop("MLFLOW_TRACKING_URI", None)
            local.run(components.load_component_from_file(compiled), out)
            local.run(build.depth_search_pipeline(recipe), out)
            outputs = local.run(build.language_pipeline(recipe), out)
            uri = os.environ["MLFLOW_TRACKING_URI"]
        return cls(out, recipe, uri, screen.getvalue(), outputs)

    @property
    def client(self) -> MlflowClient:
        """MLflow on the store that the runs made."""
        return MlflowClient(self.uri)

    def runs(self) -> dict[str, tuple[Run, dict[str, Run]]]:
        """Each pipeline's run, and the runs of its stages by name."""
        return runs_of(self.client, self.recipe.name)

    def stage(self, pipeline: str, name: str) -> Run:
        """The run of a stage."""
        return self.runs()[pipeline][1][name]

    def champion(self, model: str) -> ModelVersion:
        """The champion of a registered model, by the model's name without the project's."""
        return self.client.get_model_version_by_alias(f"{self.recipe.name}-{model}", "champion")

    def made(self, pipeline: str, step: str, name: str) -> list[dict[str, Any]]:
        """A step's output artifacts as KFP was told of them, one for each time that the step ran."""
        root = self.folder / "runs"
        files = sorted(root.glob(f"{self.recipe.name}-{pipeline}-*/**/{step}/executor_output.json"))
        told = [json.loads(file.read_text(encoding="utf-8"))["artifacts"][name]["artifacts"] for file in files]
        return [artifact for artifacts in told for artifact in artifacts]

    def artifacts(self, pipeline: str, step: str, name: str, kind: Kind) -> list[Artifact]:
        """The same as artifacts of ours, verified."""
        return [Artifact.load(Path(made["uri"]), kind) for made in self.made(pipeline, step, name)]


def runs_of(client: MlflowClient, project: str) -> dict[str, tuple[Run, dict[str, Run]]]:
    """Each pipeline's run in a project's experiment, and the runs of its stages by name."""
    experiment = client.get_experiment_by_name(project)
    assert experiment
    parents, children = {}, defaultdict(dict)
    for run in client.search_runs([experiment.experiment_id], max_results=1000):
        if parent := run.data.tags.get(MLFLOW_PARENT_RUN_ID):
            assert run.info.run_name not in children[parent]
            children[parent][run.info.run_name] = run
        else:
            assert run.info.run_name not in parents
            parents[run.info.run_name] = run
    return {name: (run, children[run.info.run_id]) for name, run in parents.items()}

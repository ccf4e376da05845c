"""Logged models: the files of a version, in MLflow's store, with the run, the data and the recipe they come from."""

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlflow.entities import LoggedModelOutput
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from lingraft.artifacts.artifact import Artifact
from lingraft.tracking import signature
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.datasets import inputs_of
from lingraft.tracking.runs import StageRun

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel

ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
"""What MLflow answers where there is no such model, and where the model has no such alias."""
MODELS = "models:/"
_READY: Final = "READY"


def upload(name: str, made: Artifact, run: StageRun) -> str:
    """Put an artifact into the store, unless an earlier attempt has; returns the id of its logged model."""
    mlflow_client, client = MlflowClient(), run.client
    experiment = client.call(lambda: mlflow_client.get_run(run.run_id).info.experiment_id)
    model = client.call(partial(_get_or_create_model, experiment, name, made, run.run_id))
    if model.status != _READY:
        client.transfer(partial(mlflow_client.log_model_artifacts, model.model_id, str(made.folder)))
        client.transfer(partial(_upload_signature, model.model_id, made))
        client.call(partial(mlflow_client.finalize_logged_model, model.model_id, _READY))
    client.call(partial(_link_run, run.run_id, name, model.model_id, made))
    return str(model.model_id)


def upload_again(client: RetryingClient, model_id: str, made: Artifact) -> None:
    """Put an artifact's files into the store once more, in place of those that are there.

    Raises:
        TrackingError: the registry refuses, has no such logged model, or stays down.
    """
    client.transfer(partial(MlflowClient().log_model_artifacts, model_id, str(made.folder)))
    client.transfer(partial(_upload_signature, model_id, made))


def discard(model_id: str) -> None:
    """Delete a logged model, which an earlier attempt may have done; MLflow frees its space on `mlflow gc`."""
    try:
        MlflowClient().delete_logged_model(model_id)
    except MlflowException as error:
        if error.error_code not in ABSENT:
            raise


def _get_or_create_model(experiment: str, name: str, made: Artifact, run_id: str) -> "LoggedModel":
    """The logged model of this content, made unless an earlier attempt has; one that is complete comes first."""
    mlflow_client, tags = MlflowClient(), {"fingerprint": made.fingerprint}
    wanted = f"name = '{name}' AND tags.fingerprint = '{made.fingerprint}'"
    found = mlflow_client.search_logged_models([experiment], wanted)
    if not found:
        kind = str(made.manifest.kind)
        return mlflow_client.create_logged_model(
            experiment, name=name, source_run_id=run_id, tags=tags, model_type=kind
        )
    return min(found, key=lambda model: (model.status != _READY, model.creation_timestamp, model.model_id))


def _upload_signature(model_id: str, made: Artifact) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / signature.FILE
        file.write_text(signature.mlmodel_of(made.manifest, model_id), encoding="utf-8")
        MlflowClient().log_model_artifact(model_id, str(file))


def _link_run(run_id: str, name: str, model_id: str, made: Artifact) -> None:
    """Let the run that registers an artifact lead to it, to the data it was made from, and to its recipe."""
    mlflow_client, manifest = MlflowClient(), made.manifest
    if inputs := inputs_of(manifest):
        mlflow_client.log_inputs(run_id, inputs)
    outputs = mlflow_client.get_run(run_id).outputs
    if model_id not in {each.model_id for each in (outputs.model_outputs if outputs else ())}:
        mlflow_client.log_outputs(run_id, [LoggedModelOutput(model_id, manifest.cost.steps)])
    if manifest.recipe:
        mlflow_client.log_dict(run_id, manifest.recipe, f"recipes/{name}.json")

"""Logged models of MLflow: the files of a version, linked to the run, the datasets and the recipe they come from."""

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
"""Error codes of MLflow for an unknown model, and for an alias that a model does not have."""
MODELS = "models:/"
_READY: Final = "READY"


def upload(name: str, made: Artifact, run: StageRun) -> str:
    """Upload an artifact as a logged model unless an earlier attempt has, and return the model's id."""
    mlflow_client = MlflowClient()
    client = run.client
    experiment = client.call(lambda: mlflow_client.get_run(run.run_id).info.experiment_id)
    model = client.call(partial(_get_or_create_model, experiment, name, made, run.run_id))
    if model.status != _READY:
        client.transfer(partial(mlflow_client.log_model_artifacts, model.model_id, str(made.folder)))
        client.transfer(partial(_upload_signature, model.model_id, made))
        client.call(partial(mlflow_client.finalize_logged_model, model.model_id, _READY))
    client.call(partial(_link_run, run.run_id, name, model.model_id, made))
    return str(model.model_id)


def upload_again(client: RetryingClient, model_id: str, made: Artifact) -> None:
    """Upload an artifact's files again, in place of those in the store.

    Raises:
        TrackingError: the registry refuses, has no such logged model, or stays down.
    """
    client.transfer(partial(MlflowClient().log_model_artifacts, model_id, str(made.folder)))
    client.transfer(partial(_upload_signature, model_id, made))


def discard(model_id: str) -> None:
    """Delete a logged model if it exists; `mlflow gc` frees its space."""
    try:
        MlflowClient().delete_logged_model(model_id)
    except MlflowException as error:
        if error.error_code not in ABSENT:
            raise


def _get_or_create_model(experiment: str, name: str, made: Artifact, run_id: str) -> "LoggedModel":
    """Return the logged model with this fingerprint, a complete one first; create it if there is none."""
    mlflow_client = MlflowClient()
    tags = {"fingerprint": made.fingerprint}
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
    """Link the run that registers an artifact to the logged model, its input datasets, and its recipe."""
    mlflow_client = MlflowClient()
    manifest = made.manifest
    if inputs := inputs_of(manifest):
        mlflow_client.log_inputs(run_id, inputs)
    outputs = mlflow_client.get_run(run_id).outputs
    if model_id not in {each.model_id for each in (outputs.model_outputs if outputs else ())}:
        mlflow_client.log_outputs(run_id, [LoggedModelOutput(model_id, manifest.cost.steps)])
    if manifest.recipe:
        mlflow_client.log_dict(run_id, manifest.recipe, f"recipes/{name}.json")

"""Registration of artifacts. The same content is the same version, however often a request is repeated or lost.

A version's files are those of a logged model of MLflow, which is linked to the run, the datasets and the recipe it
comes from.
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.console import say
from lingraft.errors import TrackingError
from lingraft.tracking import signature
from lingraft.tracking.client import RetryingClient, ignore_absent
from lingraft.tracking.datasets import inputs_of
from lingraft.tracking.runs import StageRun, mention_artifact
from lingraft.tracking.tags import mlflow_tags, model_card, model_description, numeric_tags, recorded_tags
from lingraft.tracking.versions import MODELS

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.entities.model_registry import ModelVersion

_READY: Final = "READY"


def register(
    name: str, folder: Path, kind: Kind, run: StageRun, tags: Mapping[str, object], aliases: Sequence[str] = ()
) -> str:
    """Register a verified artifact as a version of a model, point aliases at it, and return the version.

    The same content is the same version, however often a step runs, wherever it was interrupted, and whoever else
    registers it at the same time: an existing version is found by its fingerprint and completed. A version appears
    with all its tags and files, or not at all.

    Args:
        tags: tags beside those that follow from its manifest; scores are among them.
        aliases: aliases to move to this version; `lingraft.tracking.promotion.promote` alone moves `champion`.

    Raises:
        ArtifactError: the artifact is damaged or of another kind.
    """
    made = Artifact.load(folder, kind)
    client = run.client
    own_tags = {key: str(value) for key, value in tags.items() if value is not None}
    facts = mlflow_tags(made) | {"project": run.project} | own_tags
    with mention_artifact(made):
        version = client.call(partial(_find_version, name, made.fingerprint))
        if version is None:
            version = _upload_version(name, made, run, facts, model_card(made, name, numeric_tags(own_tags)))
        known = client.api.get_model_version(name, version).tags
        stored = recorded_tags(made.manifest)  # of the stored copy, which an earlier registration may have uploaded
        for key, value in facts.items():
            if known.get(key) != value and not (key in stored and key in known):
                client.api.set_model_version_tag(name, version, key, value)
        for alias in aliases:
            client.api.set_registered_model_alias(name, alias, version)
        if client.repeated:
            client.call(partial(_find_version, name, made.fingerprint))
    return version


def require_model(client: RetryingClient, name: str, description: str | None = None) -> None:
    """Create a registered model unless it exists."""

    def get_or_create() -> None:
        mlflow_client = MlflowClient()
        if not mlflow_client.search_registered_models(f"name='{name}'", max_results=1):
            mlflow_client.create_registered_model(name, description=description)

    client.call(get_or_create)


def upload_files(client: RetryingClient, model_id: str, made: Artifact) -> None:
    """Upload an artifact's files to a logged model, in place of those that it has."""
    client.transfer(partial(MlflowClient().log_model_artifacts, model_id, str(made.folder)))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / signature.FILE
        file.write_text(signature.mlmodel_of(made.manifest, model_id), encoding="utf-8")
        client.transfer(partial(MlflowClient().log_model_artifact, model_id, str(file)))


def _upload_version(name: str, made: Artifact, run: StageRun, facts: Mapping[str, str], card: str) -> str:
    """Create a version and look again, so that two processes that do so at once both return the first one.

    The later process deletes the files that it uploaded, which a third may be using: that one finds the first version.
    """
    client = run.client
    try:
        model_id = _upload(name, made, run)
        require_model(client, name, model_description(str(made.manifest.kind), run.project))
        version = client.call(lambda: _create_version(name, made.fingerprint, model_id, facts, card))
        client.call(partial(_link_version, model_id, name, version))
    except TrackingError:
        theirs = client.call(partial(_find_version, name, made.fingerprint))
        if theirs is None:
            raise
        return theirs
    return version


def _upload(name: str, made: Artifact, run: StageRun) -> str:
    """Upload an artifact as a logged model unless an earlier attempt has, and return the model's id."""
    client = run.client
    experiment = client.api.get_run(run.run_id).info.experiment_id
    model = client.call(partial(_get_or_create_model, experiment, name, made, run.run_id))
    if model.status != _READY:
        upload_files(client, model.model_id, made)
        client.api.finalize_logged_model(model.model_id, _READY)
    client.call(partial(_link_run, run.run_id, name, model.model_id, made))
    return str(model.model_id)


def _get_or_create_model(experiment: str, name: str, made: Artifact, run_id: str) -> "LoggedModel":
    """Return the logged model with this fingerprint, a complete one first; create it if there is none."""
    mlflow_client = MlflowClient()
    wanted = f"name = '{name}' AND tags.fingerprint = '{made.fingerprint}'"
    if found := mlflow_client.search_logged_models([experiment], wanted):
        return min(found, key=lambda model: (model.status != _READY, model.creation_timestamp, model.model_id))
    return mlflow_client.create_logged_model(
        experiment,
        name=name,
        source_run_id=run_id,
        tags={"fingerprint": made.fingerprint},
        model_type=str(made.manifest.kind),
    )


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


def _link_version(model_id: str, name: str, version: str) -> None:
    """Link the logged model to the version on MLflow's pages, as `mlflow.register_model` does.

    The logged model of a deleted duplicate gets no link.
    """
    mlflow_client = MlflowClient()
    ours = {"name": name, "version": version}
    if mlflow_client.get_model_version(name, version).source != f"{MODELS}{model_id}":
        return
    links: list[Any] = json.loads(mlflow_client.get_logged_model(model_id).tags.get(MLFLOW_MODEL_VERSIONS, "[]"))
    if ours not in links:
        mlflow_client.set_logged_model_tags(model_id, {MLFLOW_MODEL_VERSIONS: json.dumps([*links, ours])})


def _create_version(name: str, fingerprint: str, model_id: str, facts: Mapping[str, str], card: str) -> str:
    mlflow_client = MlflowClient()
    found = _find_version(name, fingerprint)
    if found is None:
        source = f"{MODELS}{model_id}"
        mlflow_client.create_model_version(name, source, tags=dict(facts), model_id=model_id, description=card)
        found = _find_version(name, fingerprint)
    assert found is not None
    _discard_unused(mlflow_client, f"{MODELS}{model_id}")
    return found


def _find_version(name: str, fingerprint: str) -> str | None:
    """Return the version with this fingerprint; of several, created at the same time, delete all but the first."""
    mlflow_client = MlflowClient()
    found = mlflow_client.search_model_versions(f"name='{name}' and tags.fingerprint='{fingerprint}'")
    if not found:
        return None
    first, *duplicates = sorted(found, key=lambda version: int(version.version))
    for duplicate in duplicates:
        _delete_duplicate(mlflow_client, duplicate, first)
    return str(first.version)


def _delete_duplicate(mlflow_client: MlflowClient, duplicate: "ModelVersion", first: "ModelVersion") -> None:
    """Delete a duplicate unless an alias points at it; its creator may be deleting it too."""
    with ignore_absent():
        if mlflow_client.get_model_version(duplicate.name, duplicate.version).aliases:
            return
        title = f"Version {duplicate.version} of {duplicate.name!r}"
        say(f"{title} has the same content as version {first.version}, and goes.")
        mlflow_client.delete_model_version(duplicate.name, duplicate.version)
    _discard_unused(mlflow_client, str(duplicate.source))


def _discard_unused(mlflow_client: MlflowClient, source: str) -> None:
    """Delete uploaded files that belong to no version, or to a deleted duplicate."""
    if not mlflow_client.search_model_versions(f"source_path = '{source}'"):
        with ignore_absent():
            mlflow_client.delete_logged_model(source.removeprefix(MODELS))

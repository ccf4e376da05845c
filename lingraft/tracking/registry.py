"""The registry of artifacts. The same content is the same version, however often a request is repeated or lost."""

import contextlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

from lingraft.artifacts.artifact import MLFLOW_FILES, Artifact, Kind
from lingraft.console import say
from lingraft.errors import ArtifactError, NotRegisteredError, TrackingError
from lingraft.tracking.client import RetryingClient, retrying_client
from lingraft.tracking.logged_models import ABSENT, MODELS, discard, upload
from lingraft.tracking.runs import StageRun, mention_artifact
from lingraft.tracking.tags import mlflow_tags, model_card, model_description, numeric_tags, recorded_tags

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

CHAMPION = "champion"
REPAIR = (
    "`lingraft registry restore MODEL VERSION FOLDER` repairs a version from a folder with the same artifact, such as "
    "a backup or the output of the step that made it."
)
"""Advice of messages about damaged versions: registering the same content again would find and keep the damaged one."""


def register(
    name: str, folder: Path, kind: Kind, run: StageRun, tags: Mapping[str, object], aliases: Sequence[str] = ()
) -> str:
    """Register a verified artifact as a version of a model, point aliases at it, and return the version.

    The same content is the same version, however often a step runs, wherever it was interrupted, and whoever else
    registers it at the same time: an existing version is found by its fingerprint and completed. A version appears
    with all its tags and files, or not at all.

    Args:
        name: registered model, such as `<project>-embeddings-de`.
        folder: the artifact.
        kind: kind that the artifact must have.
        run: run that registers it.
        tags: tags beside those that follow from its manifest; scores are among them.
        aliases: aliases to move to this version; `lingraft.tracking.promotion.promote` alone moves `champion`.

    Raises:
        ArtifactError: the artifact is damaged or of another kind.
        TrackingError: the registry refuses, or stays down. A second run completes the registration.
    """
    made = Artifact.load(folder, kind)
    client = run.client
    own_tags = {key: str(value) for key, value in tags.items() if value is not None}
    facts = mlflow_tags(made) | {"project": run.project} | own_tags
    mlflow_client = mlflow.MlflowClient()
    with mention_artifact(made):
        version = client.call(partial(_find_version, name, made.fingerprint))
        if version is None:
            version = _upload_version(name, made, run, facts, model_card(made, name, numeric_tags(own_tags)))
        known = client.call(partial(mlflow_client.get_model_version, name, version)).tags
        stored = recorded_tags(made.manifest)  # of the stored copy, which an earlier registration may have uploaded
        for key, value in facts.items():
            if known.get(key) != value and not (key in stored and key in known):
                client.call(partial(mlflow_client.set_model_version_tag, name, version, key, value))
        for alias in aliases:
            client.call(partial(mlflow_client.set_registered_model_alias, name, alias, version))
        if client.repeated:
            client.call(partial(_find_version, name, made.fingerprint))
    return version


def fetch(name: str, kind: Kind, out: Path, alias: str = CHAMPION) -> Artifact:
    """Download a registered artifact to a folder, and verify it.

    Raises:
        TrackingError: no such model or alias, or the registry stays down for as long as it is waited for.
        ArtifactError: the download is damaged, or `out` cannot be written.
    """
    with retrying_client() as client:
        found = client.call(partial(_version_by_alias, name, alias))
        mark = found.tags.get("fingerprint", "")
        return download_artifact(client, str(found.source), f"{alias!r} of {name!r}", kind, out, mark)


def fetch_run_artifact(run_id: str, name: str, kind: Kind, out: Path) -> Artifact:
    """Download an artifact of a run to a folder, and verify it.

    Raises:
        TrackingError: no such run or artifact, or the server stays down for as long as it is waited for.
        ArtifactError: the download is damaged, or `out` cannot be written.
    """
    with retrying_client() as client:
        return download_run_artifact(client, run_id, name, kind, out)


def download_run_artifact(client: RetryingClient, run_id: str, name: str, kind: Kind, out: Path) -> Artifact:
    """Download an artifact of a run by a client that is open already; see `fetch_run_artifact`."""
    return download_artifact(
        client, client.call(partial(_artifact_uri, run_id, name)), f"{name!r} of run {run_id}", kind, out, None
    )


def tag(name: str, key: str, value: str, alias: str = CHAMPION) -> None:
    """Set a tag on the version that an alias points at.

    Raises:
        TrackingError: no such model or alias, or the registry stays down for as long as it is waited for.
    """
    with retrying_client() as client:
        version = client.call(partial(_version_by_alias, name, alias)).version
        client.call(partial(mlflow.MlflowClient().set_model_version_tag, name, version, key, value))


def tags_of(name: str, alias: str = CHAMPION) -> dict[str, str]:
    """Tags of the version that an alias points at.

    Raises:
        TrackingError: no such model or alias, or the registry stays down for as long as it is waited for.
    """
    with retrying_client() as client:
        return dict(client.call(partial(_version_by_alias, name, alias)).tags)


def _version_by_alias(name: str, alias: str) -> "ModelVersion":
    try:
        return mlflow.MlflowClient().get_model_version_by_alias(name, alias)
    except MlflowException as error:
        if error.error_code not in ABSENT:
            raise
        raise NotRegisteredError(
            f"the registry at {mlflow.get_tracking_uri()} has no {alias!r} of {name!r}: {error.message} "
            "Run the pipeline that registers it first, or set MLFLOW_TRACKING_URI to the registry that has it."
        ) from error


def download_artifact(
    client: RetryingClient, uri: str, what: str, kind: Kind, out: Path, fingerprint: str | None
) -> Artifact:
    """Download an artifact from the store to a folder, and verify it.

    Args:
        client: MLflow, with retries.
        uri: URI of the artifact.
        what: name of the artifact for messages.
        kind: kind that it must have.
        out: new folder.
        fingerprint: fingerprint by the registry's tags, which are stored apart from the files; None if unknown.

    Raises:
        TrackingError: the store has no such artifact, or the server stays down.
        ArtifactError: the download is damaged or has another fingerprint, or `out` cannot be written.
    """
    with contextlib.ExitStack() as stack:
        source = client.transfer(partial(_download_folder, uri, stack))
        try:
            found = Artifact.load(source, kind)
        except ArtifactError as error:
            raise ArtifactError(f"{what} at {mlflow.get_tracking_uri()} came as {error} {REPAIR}") from error
        require_tagged(found, fingerprint, f"{what} at {mlflow.get_tracking_uri()}")
        found.copy_to(out)
    return Artifact.load(out, kind)


def require_tagged(found: Artifact, fingerprint: str | None, what: str) -> None:
    """Refuse an artifact whose fingerprint differs from the registry's tag.

    Raises:
        ArtifactError: the fingerprints differ; the message names both.
    """
    if fingerprint is not None and found.fingerprint != fingerprint:
        raise ArtifactError(
            f"{what} has fingerprint {found.fingerprint} in the store, but its tag in the registry says "
            f"{fingerprint or 'nothing'}: its manifest was edited, or the tag was. {REPAIR} If the tag was edited, set "
            "it back to the fingerprint in the version's description."
        )


def _artifact_uri(run_id: str, name: str) -> str:
    """Return the URI of a run's artifact; MLflow's `runs:/` mistakes a server that is down for an absent artifact."""
    mlflow_client = mlflow.MlflowClient()
    if not mlflow_client.list_artifacts(run_id, name):
        raise TrackingError(
            f"run {run_id} at {mlflow.get_tracking_uri()} keeps no {name!r}. Run the step that makes it, or give the "
            "run that has it."
        )
    return f"{mlflow_client.get_run(run_id).info.artifact_uri}/{name}"


def _download_folder(uri: str, stack: contextlib.ExitStack) -> Path:
    """Download to a new folder, so that nothing of a failed attempt stays in it."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    found = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=folder))
    for name in MLFLOW_FILES:
        (found / name).unlink(missing_ok=True)
    return found


def _find_version(name: str, fingerprint: str) -> str | None:
    """Return the version with this fingerprint; of several, created at the same time, delete all but the first."""
    mlflow_client = mlflow.MlflowClient()
    found = mlflow_client.search_model_versions(f"name='{name}' and tags.fingerprint='{fingerprint}'")
    if not found:
        return None
    first, *duplicates = sorted(found, key=lambda version: int(version.version))
    for duplicate in duplicates:
        _delete_duplicate(mlflow_client, duplicate, first)
    return str(first.version)


def _delete_duplicate(mlflow_client: mlflow.MlflowClient, duplicate: "ModelVersion", first: "ModelVersion") -> None:
    """Delete a duplicate unless an alias points at it; its creator may be deleting it too."""
    try:
        if mlflow_client.get_model_version(duplicate.name, duplicate.version).aliases:
            return
        title = f"Version {duplicate.version} of {duplicate.name!r}"
        say(f"{title} has the same content as version {first.version}, and goes.")
        mlflow_client.delete_model_version(duplicate.name, duplicate.version)
    except MlflowException as error:
        if error.error_code not in ABSENT:
            raise
    _discard_unused(mlflow_client, str(duplicate.source))


def require_model(name: str, description: str | None = None) -> None:
    """Create a registered model unless it exists."""
    mlflow_client = mlflow.MlflowClient()
    if not mlflow_client.search_registered_models(f"name='{name}'", max_results=1):
        mlflow_client.create_registered_model(name, description=description)


def _upload_version(name: str, made: Artifact, run: StageRun, facts: Mapping[str, str], card: str) -> str:
    """Create a version and look again, so that two processes that do so at once both return the first one.

    The later process deletes the files that it uploaded, which a third may be using: that one finds the first version.
    """
    try:
        model_id = upload(name, made, run)
        run.client.call(partial(require_model, name, model_description(str(made.manifest.kind), run.project)))
        version = run.client.call(partial(_create_version, name, made.fingerprint, model_id, facts, card))
        run.client.call(partial(_link, model_id, name, version))
    except TrackingError:
        theirs = run.client.call(partial(_find_version, name, made.fingerprint))
        if theirs is None:
            raise
        return theirs
    return version


def _create_version(name: str, fingerprint: str, model_id: str, facts: Mapping[str, str], card: str) -> str:
    mlflow_client = mlflow.MlflowClient()
    found = _find_version(name, fingerprint)
    if found is None:
        mlflow_client.create_model_version(
            name, f"{MODELS}{model_id}", tags=dict(facts), model_id=model_id, description=card
        )
        found = _find_version(name, fingerprint)
    assert found is not None
    _discard_unused(mlflow_client, f"{MODELS}{model_id}")
    return found


def _discard_unused(mlflow_client: mlflow.MlflowClient, source: str) -> None:
    """Delete uploaded files that belong to no version, or to a deleted duplicate."""
    if not mlflow_client.search_model_versions(f"source_path = '{source}'"):
        discard(source.removeprefix(MODELS))


def _link(model_id: str, name: str, version: str) -> None:
    """Link the logged model to the version on MLflow's pages, as `mlflow.register_model` does.

    The logged model of a deleted duplicate gets no link.
    """
    mlflow_client = mlflow.MlflowClient()
    ours = {"name": name, "version": version}
    if mlflow_client.get_model_version(name, version).source != f"{MODELS}{model_id}":
        return
    links: list[Any] = json.loads(mlflow_client.get_logged_model(model_id).tags.get(MLFLOW_MODEL_VERSIONS, "[]"))
    if ours not in links:
        mlflow_client.set_logged_model_tags(model_id, {MLFLOW_MODEL_VERSIONS: json.dumps([*links, ours])})

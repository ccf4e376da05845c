"""The registry of artifacts: the same content is the same version, whatever is repeated and whatever answer is lost."""

import contextlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

from lingraft.artifact import Artifact, Kind
from lingraft.errors import ArtifactError, NotRegisteredError, TrackingError
from lingraft.progress import say
from lingraft.tracking.runs import StageRun, whole
from lingraft.tracking.server import Asking, asking

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.entities.model_registry import ModelVersion

CHAMPION = "champion"
_ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
"""What MLflow answers where there is no such model, and where the model has no such alias."""
_READY: Final = "READY"


def register(
    name: str, folder: Path, kind: Kind, run: StageRun, tags: Mapping[str, object], aliases: Sequence[str] = (CHAMPION,)
) -> str:
    """Register a verified artifact as a version of a model, and point aliases at it; returns the version.

    The same content is the same version, however often a step runs and wherever it was broken off: what an earlier
    attempt left half done is found by its fingerprint and gone on with.

    Args:
        name: registered model, such as `<project>-embeddings-de`.
        folder: the artifact.
        kind: what it must be.
        run: the run that it comes from.
        tags: what to know of it beside fingerprint, language and alignment.
        aliases: moved to this version.

    Raises:
        ArtifactError: the artifact is damaged or of another kind.
        TrackingError: the registry refuses, or stays down for as long as it is waited for. Run again, and what is
            missing is done.
    """
    made = Artifact.load(folder, kind)
    facts = {"kind": kind, "language": made.manifest.language, "aligned_with": made.manifest.aligned_with, **tags}
    client, ask = mlflow.MlflowClient(), run.ask
    with whole(made):
        version = ask(partial(_version_of, name, made.fingerprint)) or _upload(name, made, run)
        for key, value in facts.items():
            if value is not None:
                ask(partial(client.set_model_version_tag, name, version, key, str(value)))
        for alias in aliases:
            ask(partial(client.set_registered_model_alias, name, alias, version))
        if ask.repeated:
            ask(partial(_version_of, name, made.fingerprint))
    return version


def fetch(name: str, kind: Kind, out: Path, alias: str = CHAMPION) -> Artifact:
    """Copy a registered artifact to a folder, and verify it.

    Raises:
        TrackingError: no such model or alias, or the registry stays down for as long as it is waited for.
        ArtifactError: what came is damaged, or `out` cannot be written.
    """
    with asking() as ask:
        source = str(ask(partial(_champion, name, alias)).source)
        return _download(ask, source, f"{alias!r} of {name!r}", kind, out)


def fetch_kept(run_id: str, name: str, kind: Kind, out: Path) -> Artifact:
    """Copy an artifact that a run keeps to a folder, and verify it.

    Raises:
        TrackingError: no such run or artifact, or the server stays down for as long as it is waited for.
        ArtifactError: what came is damaged, or `out` cannot be written.
    """
    with asking() as ask:
        return _download(ask, ask(partial(_place_of, run_id, name)), f"{name!r} of run {run_id}", kind, out)


def tag(name: str, key: str, value: str, alias: str = CHAMPION) -> None:
    """Set a tag on the version that an alias points at.

    Raises:
        TrackingError: no such model or alias, or the registry stays down for as long as it is waited for.
    """
    with asking() as ask:
        version = ask(partial(_champion, name, alias)).version
        ask(partial(mlflow.MlflowClient().set_model_version_tag, name, version, key, value))


def tags_of(name: str, alias: str = CHAMPION) -> dict[str, str]:
    """Tags of the version that an alias points at.

    Raises:
        TrackingError: no such model or alias, or the registry stays down for as long as it is waited for.
    """
    with asking() as ask:
        return dict(ask(partial(_champion, name, alias)).tags)


def _champion(name: str, alias: str) -> "ModelVersion":
    try:
        return mlflow.MlflowClient().get_model_version_by_alias(name, alias)
    except MlflowException as error:
        if error.error_code not in _ABSENT:
            raise
        raise NotRegisteredError(
            f"the registry at {mlflow.get_tracking_uri()} has no {alias!r} of {name!r}: {error.message} "
            "Run the pipeline that registers it first, or set MLFLOW_TRACKING_URI to the registry that has it."
        ) from error


def _download(ask: Asking, uri: str, what: str, kind: Kind, out: Path) -> Artifact:
    with contextlib.ExitStack() as stack:
        source = ask.transfer(partial(_downloaded, uri, stack))
        try:
            found = Artifact.load(source, kind)
        except ArtifactError as error:
            raise ArtifactError(f"{what} at {mlflow.get_tracking_uri()} came as {error}") from error
        found.copy_to(out)
    return Artifact.load(out, kind)


def _place_of(run_id: str, name: str) -> str:
    """Where a run keeps an artifact; MLflow's `runs:/` takes a server that is down for an artifact that is absent."""
    client = mlflow.MlflowClient()
    if not client.list_artifacts(run_id, name):
        raise TrackingError(
            f"run {run_id} at {mlflow.get_tracking_uri()} keeps no {name!r}. Run the step that makes it, or give the "
            "run that has it."
        )
    return f"{client.get_run(run_id).info.artifact_uri}/{name}"


def _downloaded(uri: str, stack: contextlib.ExitStack) -> Path:
    """Every attempt gets a folder of its own, so that nothing of a broken one stays in it."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    return Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=folder))


def _version_of(name: str, fingerprint: str) -> str | None:
    """The version that has this content; of twins, which a late request may have made, the first one alone stays."""
    client = mlflow.MlflowClient()
    found = client.search_model_versions(f"name='{name}' and tags.fingerprint='{fingerprint}'")
    if not found:
        return None
    first, *twins = sorted(int(version.version) for version in found)
    for twin in twins:
        if not client.get_model_version(name, str(twin)).aliases:
            say(f"Version {twin} of {name!r} has the same content as version {first}, and goes.")
            client.delete_model_version(name, str(twin))
    return str(first)


def _upload(name: str, made: Artifact, run: StageRun) -> str:
    client, ask = mlflow.MlflowClient(), run.ask
    experiment = ask(lambda: client.get_run(run.run_id).info.experiment_id)
    model = ask(partial(_logged_model, experiment, name, made, run.run_id))
    if model.status != _READY:
        ask.transfer(partial(client.log_model_artifacts, model.model_id, str(made.folder)))
        ask(partial(client.finalize_logged_model, model.model_id, _READY))
    ask(partial(_model, name))
    version = ask(partial(_new_version, name, made.fingerprint, model.model_id))
    ask(partial(_link, model.model_id, name, version))
    return version


def _logged_model(experiment: str, name: str, made: Artifact, run_id: str) -> "LoggedModel":
    """The logged model of this content, made unless an earlier attempt has; one that is complete comes first."""
    client, tags = mlflow.MlflowClient(), {"fingerprint": made.fingerprint}
    wanted = f"name = '{name}' AND tags.fingerprint = '{made.fingerprint}'"
    found = client.search_logged_models([experiment], wanted)
    if not found:
        kind = str(made.manifest.kind)
        return client.create_logged_model(experiment, name=name, source_run_id=run_id, tags=tags, model_type=kind)
    return min(found, key=lambda model: (model.status != _READY, model.creation_timestamp, model.model_id))


def _model(name: str) -> None:
    client = mlflow.MlflowClient()
    if not client.search_registered_models(f"name='{name}'", max_results=1):
        client.create_registered_model(name)


def _new_version(name: str, fingerprint: str, model_id: str) -> str:
    found = _version_of(name, fingerprint)
    if found is not None:
        return found
    tags, source = {"fingerprint": fingerprint}, f"models:/{model_id}"
    return str(mlflow.MlflowClient().create_model_version(name, source, tags=tags, model_id=model_id).version)


def _link(model_id: str, name: str, version: str) -> None:
    """Let MLflow's pages lead from the logged model to the version, as `mlflow.register_model` does."""
    client, ours = mlflow.MlflowClient(), {"name": name, "version": version}
    links: list[Any] = json.loads(client.get_logged_model(model_id).tags.get(MLFLOW_MODEL_VERSIONS, "[]"))
    if ours not in links:
        client.set_logged_model_tags(model_id, {MLFLOW_MODEL_VERSIONS: json.dumps([*links, ours])})

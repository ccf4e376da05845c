"""Registration of artifacts. The same content is the same version, however often a request is repeated or lost."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlflow import MlflowClient

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.console import say
from lingraft.errors import TrackingError
from lingraft.tracking.client import ignore_absent
from lingraft.tracking.runs import StageRun, mention_artifact
from lingraft.tracking.tags import description_of, mlflow_tags
from lingraft.tracking.versions import MODELS

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion


def register(
    name: str, folder: Path, kind: Kind, run: StageRun, tags: Mapping[str, object], aliases: Sequence[str] = ()
) -> int:
    """Register a verified artifact as a version of a model, point aliases at it, and return the version.

    A version is found by its fingerprint, so the same content is the same version, wherever an earlier attempt was
    interrupted, and whoever else registers it at the same time. It appears with all its tags and files, or not at all.

    Args:
        tags: tags beside those that follow from its manifest; scores are among them.
        aliases: aliases to move to this version; `lingraft.tracking.promotion` alone moves `champion`.
    """
    made = Artifact.load(folder, kind)
    client = run.client
    own_tags = {key: str(value) for key, value in tags.items() if value is not None}
    with mention_artifact(made):
        version = _find_version(client, name, made.fingerprint) or _create_version(name, made, run, own_tags)
        known = client.get_model_version(name, version).tags
        for key, value in own_tags.items():
            if known.get(key) != value:
                client.set_model_version_tag(name, version, key, value)
        for alias in aliases:
            client.set_registered_model_alias(name, alias, version)
    return int(version)


def _create_version(name: str, made: Artifact, run: StageRun, own_tags: Mapping[str, str]) -> str:
    """Upload an artifact, and create its version; of several that are created at once, all return the first one.

    The later process deletes the files that it uploaded, which a third may be using: that one finds the first version.
    """
    client = run.client
    try:
        model_id = _upload(name, made, run)
        if not client.search_registered_models(f"name='{name}'", max_results=1):
            with contextlib.suppress(TrackingError):  # another process may create it at this moment
                client.create_registered_model(name)
        version = _find_version(client, name, made.fingerprint)
        if version is None:
            facts = {**mlflow_tags(made), "project": run.project, **own_tags}
            source, note = f"{MODELS}{model_id}", description_of(made, {})
            client.create_model_version(name, source, tags=facts, model_id=model_id, description=note)
            version = _find_version(client, name, made.fingerprint)
        assert version is not None
        for uploaded in _uploaded(name, made, run):
            _discard_unused(client, f"{MODELS}{uploaded}")
    except TrackingError:
        theirs = _find_version(client, name, made.fingerprint)
        if theirs is None:
            raise
        return theirs
    return version


def _upload(name: str, made: Artifact, run: StageRun) -> str:
    """Upload an artifact as a logged model, over what an earlier attempt may have uploaded, and return its id."""
    client = run.client
    if not (found := _uploaded(name, made, run)):
        experiment = client.get_run(run.run_id).info.experiment_id
        tags, kind = {"fingerprint": made.fingerprint}, str(made.manifest.kind)
        found = [client.create_logged_model(experiment, name, run.run_id, tags, model_type=kind).model_id]
    client.log_model_artifacts(found[0], str(made.folder))
    client.finalize_logged_model(found[0], "READY")
    return found[0]


def _uploaded(name: str, made: Artifact, run: StageRun) -> list[str]:
    """Return the ids of an artifact's logged models, the first one first; several if a request was repeated."""
    experiment = run.client.get_run(run.run_id).info.experiment_id
    wanted = f"name = '{name}' AND tags.fingerprint = '{made.fingerprint}'"
    found = run.client.search_logged_models([experiment], wanted)
    return [str(each.model_id) for each in sorted(found, key=lambda each: (each.creation_timestamp, each.model_id))]


def _find_version(client: MlflowClient, name: str, fingerprint: str) -> str | None:
    """Return the version with this fingerprint; of several, created at the same time, delete all but the first."""
    found = client.search_model_versions(f"name='{name}' and tags.fingerprint='{fingerprint}'")
    if not found:
        return None
    first, *duplicates = sorted(found, key=lambda version: int(version.version))
    for duplicate in duplicates:
        _delete_duplicate(client, duplicate, first)
    return str(first.version)


def _delete_duplicate(client: MlflowClient, duplicate: "ModelVersion", first: "ModelVersion") -> None:
    """Delete a duplicate unless an alias points at it; its creator may be deleting it too."""
    with ignore_absent():
        if client.get_model_version(duplicate.name, duplicate.version).aliases:
            return
        title = f"Version {duplicate.version} of {duplicate.name!r}"
        say(f"{title} has the same content as version {first.version}, and goes.")
        client.delete_model_version(duplicate.name, duplicate.version)
    _discard_unused(client, str(duplicate.source))


def _discard_unused(client: MlflowClient, source: str) -> None:
    """Delete uploaded files that belong to no version, or to a deleted duplicate."""
    if not client.search_model_versions(f"source_path = '{source}'"):
        with ignore_absent():
            client.delete_logged_model(source.removeprefix(MODELS))

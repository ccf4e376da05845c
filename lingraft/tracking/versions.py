"""Versions of registered models as plain records, with their tags and aliases, and requests about them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from lingraft.artifacts.artifact import MANIFEST, Artifact, Kind, Manifest, read_manifest
from lingraft.errors import ArtifactError, NotRegisteredError
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.logged_models import ABSENT, MODELS, discard
from lingraft.tracking.registry import CHAMPION, download_artifact, require_tagged

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

_PAGE = 1000


@dataclass(frozen=True)
class Version:
    """One version of a registered model."""

    name: str
    number: int
    tags: dict[str, str]
    aliases: tuple[str, ...]
    created_ms: int
    """Time of registration, in milliseconds since 1970."""
    run_id: str | None
    source: str
    """URI of its logged model."""
    description: str

    @classmethod
    def from_mlflow(cls, found: "ModelVersion", aliases: Mapping[str, str]) -> Self:
        """Build the record from MLflow's answer.

        Args:
            found: version as MLflow returns it.
            aliases: aliases of its model with the versions they point at, which MLflow's search does not return.
        """
        return cls(
            name=found.name,
            number=int(found.version),
            tags=dict(found.tags),
            aliases=tuple(sorted(alias for alias, number in aliases.items() if str(number) == str(found.version))),
            created_ms=int(found.creation_timestamp),
            run_id=found.run_id or None,
            source=str(found.source),
            description=found.description or "",
        )

    @property
    def title(self) -> str:
        """Name of the version in messages."""
        return f"version {self.number} of {self.name!r}"

    @property
    def is_champion(self) -> bool:
        """Whether the alias `champion` points at the version."""
        return CHAMPION in self.aliases

    @property
    def kind(self) -> str | None:
        """Kind of the artifact; None if lingraft did not register the version."""
        return self.tags.get("kind")

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the artifact; empty if lingraft did not register the version."""
        return self.tags.get("fingerprint", "")


def versions(client: RetryingClient, project: str) -> list[Version]:
    """Return every version of a project, sorted by name and number."""
    return sorted(_find_versions(client, f"tags.project = '{project}'"), key=lambda each: (each.name, each.number))


def versions_of(client: RetryingClient, name: str) -> list[Version]:
    """Return every version of a model, sorted by number; none if there is no such model."""
    return sorted(_find_versions(client, f"name = '{name}'"), key=lambda each: each.number)


def projects(client: RetryingClient) -> list[str]:
    """Return the names of projects with registered versions."""
    return sorted({each.tags["project"] for each in _find_versions(client, "") if "project" in each.tags})


def version_of(client: RetryingClient, name: str, number: int) -> Version:
    """Return one version of a model.

    Raises:
        NotRegisteredError: there is no such version.
        TrackingError: the registry refuses, or stays down.
    """
    for each in versions_of(client, name):
        if each.number == number:
            return each
    raise NotRegisteredError(
        f"the registry at {mlflow.get_tracking_uri()} has no version {number} of {name!r}. "
        "`lingraft registry ls` lists what it has."
    )


def champion_of(client: RetryingClient, name: str) -> Version | None:
    """Return the champion of a model; None if it has none."""
    return next((each for each in versions_of(client, name) if each.is_champion), None)


def alias_target(client: RetryingClient, name: str) -> Version | None:
    """Return the champion of a model by a single request, for polling; the record has no other alias.

    Raises:
        TrackingError: the registry refuses, or stays down.
    """
    return client.call(partial(_alias_target, name))


def download(client: RetryingClient, version: Version, kind: Kind, out: Path) -> Artifact:
    """Download a version's artifact to a folder, and verify it.

    Raises:
        TrackingError: the registry refuses, or stays down.
        ArtifactError: the download is damaged or contradicts its tag, or `out` cannot be written.
    """
    return download_artifact(client, version.source, version.title, kind, out, version.fingerprint)


def move_champion(client: RetryingClient, name: str, number: int | None) -> None:
    """Point the alias `champion` at a version, or delete it if None, in one request."""
    if number is not None:
        client.call(partial(MlflowClient().set_registered_model_alias, name, CHAMPION, str(number)))
    else:
        client.call(partial(_delete_alias, name))


def set_tags(client: RetryingClient, version: Version, tags: Mapping[str, str]) -> None:
    """Set tags of a version, in their order."""
    for key, value in tags.items():
        client.call(partial(MlflowClient().set_model_version_tag, version.name, str(version.number), key, value))


def delete_version(client: RetryingClient, version: Version) -> None:
    """Delete a version and its logged model; `mlflow gc` frees their space."""
    mlflow_client = MlflowClient()
    client.call(partial(_unless_absent, mlflow_client.delete_model_version, version.name, str(version.number)))
    if version.source.startswith(MODELS):
        client.call(partial(discard, version.source.removeprefix(MODELS)))


def delete_tag(client: RetryingClient, version: Version, key: str) -> None:
    """Delete a tag of a version if it exists."""
    client.call(
        partial(_unless_absent, MlflowClient().delete_model_version_tag, version.name, str(version.number), key)
    )


def download_files(
    client: RetryingClient, version: Version, kind: Kind, out: Path, wanted: Callable[[Manifest], Iterable[str]]
) -> Artifact:
    """Download the manifest and some files of a version's artifact to a folder, and verify each file.

    Args:
        client: MLflow, with retries.
        version: version of the artifact.
        kind: kind that the artifact must have.
        out: new folder.
        wanted: function that returns the names of the files to download, from the manifest.

    Raises:
        TrackingError: the registry refuses, lacks a file, or stays down.
        ArtifactError: the download is damaged, of another kind, or contradicts its tag.
    """
    location = client.call(partial(_artifact_location, version))
    client.transfer(partial(_download, f"{location}/{MANIFEST}", out))
    manifest = read_manifest(out)
    if manifest.kind is not kind:
        raise ArtifactError(
            f"{version.title} is an artifact of kind {manifest.kind}, but one of kind {kind} is needed."
        )
    found = Artifact(out, manifest, deferred=True)
    require_tagged(found, version.fingerprint, version.title)
    for name in wanted(manifest):
        client.transfer(partial(_download, f"{location}/{name}", (out / name).parent))
        found.verify(name)
    return found


def _artifact_location(version: Version) -> str:
    """Return the URI of a version's files in the store; `models:/` URIs give all files at once only."""
    return str(MlflowClient().get_logged_model(version.source.removeprefix(MODELS)).artifact_location)


def _download(uri: str, folder: Path) -> None:
    mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(folder))


def _alias_target(name: str) -> Version | None:
    try:
        found = MlflowClient().get_model_version_by_alias(name, CHAMPION)
    except MlflowException as error:
        if error.error_code not in ABSENT:
            raise
        return None
    return Version.from_mlflow(found, {CHAMPION: found.version})


def _delete_alias(name: str) -> None:
    _unless_absent(MlflowClient().delete_registered_model_alias, name, CHAMPION)


def _unless_absent(request: Callable[..., None], *arguments: str) -> None:
    """Delete something that an earlier attempt may have deleted."""
    try:
        request(*arguments)
    except MlflowException as error:
        if error.error_code not in ABSENT:
            raise


def _find_versions(client: RetryingClient, filter_string: str) -> list[Version]:
    found = search_versions(client, filter_string)
    aliases = {name: client.call(partial(_aliases, name)) for name in sorted({each.name for each in found})}
    return [Version.from_mlflow(each, aliases[each.name]) for each in found]


def _aliases(name: str) -> dict[str, str]:
    return dict(MlflowClient().get_registered_model(name).aliases)


def search_versions(client: RetryingClient, filter_string: str) -> "list[ModelVersion]":
    """Return all versions that MLflow finds, sorted by name and number, without their aliases."""
    found: list[ModelVersion] = []
    token: str | None = None
    order = ["name ASC", "version_number ASC"]
    while True:
        page = client.call(partial(MlflowClient().search_model_versions, filter_string, _PAGE, order, token))
        found += page
        token = page.token
        if not token:
            return found

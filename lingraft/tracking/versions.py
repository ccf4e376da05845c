"""Versions of registered models as plain records: how they are found, tagged, aliased, downloaded and deleted."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import mlflow

from lingraft.artifacts.artifact import MLFLOW_FILES, Artifact
from lingraft.artifacts.manifest import MANIFEST, Kind, Manifest, read_manifest
from lingraft.errors import ArtifactError, NotRegisteredError, TrackingError
from lingraft.tracking.client import RetryingClient, ignore_absent, retrying_client

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

CHAMPION = "champion"
MODELS = "models:/"
"""Scheme of the URI of a version's source, before the id of its logged model."""
REPAIR = (
    "`lingraft registry restore MODEL VERSION FOLDER` repairs a version from a folder with the same artifact, such as "
    "a backup or the output of the step that made it."
)
"""Advice of messages about damaged versions: registering the same content again would find and keep the damaged one."""
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
    def from_mlflow(cls, found: "ModelVersion", aliases: Mapping[str, object]) -> Self:
        """Build the record from MLflow's answer.

        Args:
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

    @property
    def model_id(self) -> str:
        """Id of its logged model."""
        return self.source.removeprefix(MODELS)


def versions(client: RetryingClient, project: str) -> list[Version]:
    """Return every version of a project, sorted by name and number."""
    return _find_versions(client, f"tags.project = '{project}'")


def versions_of(client: RetryingClient, name: str) -> list[Version]:
    """Return every version of a model, sorted by number; none if there is no such model."""
    return _find_versions(client, f"name = '{name}'")


def projects(client: RetryingClient) -> list[str]:
    """Return the names of projects with registered versions."""
    return sorted({each.tags["project"] for each in search_versions(client, "") if "project" in each.tags})


def require_version(client: RetryingClient, reference: str) -> Version:
    """Return the version that `NAME@ALIAS` or `NAME/NUMBER` names, as in MLflow's `models:/` addresses.

    Raises:
        NotRegisteredError: there is no such version, or the reference has neither form.
    """
    name, at, alias = reference.partition("@")
    if at:
        return _require_alias(client, name, alias)
    name, _, number = reference.rpartition("/")
    if not (name and number.isdecimal()):
        raise NotRegisteredError(
            f"models:/{reference} names no version of a model. Give models:/NAME@champion or models:/NAME/NUMBER."
        )
    return version_of(client, name, int(number))


def version_of(client: RetryingClient, name: str, number: int) -> Version:
    """Return one version of a model.

    Raises:
        NotRegisteredError: there is no such version.
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


def version_by_alias(client: RetryingClient, name: str, alias: str = CHAMPION) -> Version | None:
    """Return the version that an alias points at, by a single request; the record has no other alias."""
    with ignore_absent():
        found = client.api.get_model_version_by_alias(name, alias)
        return Version.from_mlflow(found, {alias: found.version})
    return None


def search_versions(client: RetryingClient, filter_string: str) -> "list[ModelVersion]":
    """Return all versions that MLflow finds, sorted by name and number, without their aliases."""
    found: list[ModelVersion] = []
    token: str | None = None
    while True:
        page = client.api.search_model_versions(filter_string, _PAGE, ["name ASC", "version_number ASC"], token)
        found += page
        token = page.token
        if not token:
            return found


def _find_versions(client: RetryingClient, filter_string: str) -> list[Version]:
    found = search_versions(client, filter_string)
    names = sorted({each.name for each in found})
    aliases = {name: dict(client.api.get_registered_model(name).aliases) for name in names}
    records = [Version.from_mlflow(each, aliases[each.name]) for each in found]
    return sorted(records, key=lambda each: (each.name, each.number))


def move_champion(client: RetryingClient, name: str, number: int | None) -> None:
    """Point the alias `champion` at a version, or delete it if None, in one request."""
    if number is not None:
        client.api.set_registered_model_alias(name, CHAMPION, str(number))
        return
    with ignore_absent():
        client.api.delete_registered_model_alias(name, CHAMPION)


def set_tags(client: RetryingClient, version: Version, tags: Mapping[str, str]) -> None:
    """Set tags of a version, in their order."""
    for key, value in tags.items():
        client.api.set_model_version_tag(version.name, str(version.number), key, value)


def delete_tag(client: RetryingClient, version: Version, key: str) -> None:
    """Delete a tag of a version if it exists."""
    with ignore_absent():
        client.api.delete_model_version_tag(version.name, str(version.number), key)


def delete_version(client: RetryingClient, version: Version) -> None:
    """Delete a version and its logged model; `mlflow gc` frees their space."""
    with ignore_absent():
        client.api.delete_model_version(version.name, str(version.number))
    if version.source.startswith(MODELS):
        with ignore_absent():
            client.api.delete_logged_model(version.model_id)


def tag(name: str, key: str, value: str) -> None:
    """Set a tag on the champion of a model."""
    with retrying_client() as client:
        set_tags(client, _require_alias(client, name, CHAMPION), {key: value})


def tags_of(name: str) -> dict[str, str]:
    """Return the tags of the champion of a model."""
    with retrying_client() as client:
        return _require_alias(client, name, CHAMPION).tags


def fetch(name: str, kind: Kind, out: Path, alias: str = CHAMPION) -> Artifact:
    """Download a registered artifact to a folder, and verify it.

    Raises:
        ArtifactError: the download is damaged, or `out` cannot be written.
    """
    with retrying_client() as client:
        found = _require_alias(client, name, alias)
        return download(client, found, kind, out, f"{alias!r} of {name!r}")


def download(client: RetryingClient, version: Version, kind: Kind, out: Path, title: str | None = None) -> Artifact:
    """Download a version's artifact to a folder, and verify it.

    Args:
        title: name of the version in messages; its own title if None.

    Raises:
        ArtifactError: the download is damaged or contradicts its tag, or `out` cannot be written.
    """
    return _download(
        client,
        uri=version.source,
        title=title or version.title,
        kind=kind,
        out=out,
        fingerprint=version.fingerprint,
    )


def fetch_run_artifact(run_id: str, name: str, kind: Kind, out: Path) -> Artifact:
    """Download an artifact of a run to a folder, and verify it.

    Raises:
        ArtifactError: the download is damaged, or `out` cannot be written.
    """
    with retrying_client() as client:
        return download_run_artifact(client, run_id, name, kind, out)


def download_run_artifact(client: RetryingClient, run_id: str, name: str, kind: Kind, out: Path) -> Artifact:
    """Download an artifact of a run by a client that is open already; see `fetch_run_artifact`."""
    if not client.api.list_artifacts(run_id, name):  # MLflow's `runs:/` mistakes a server that is down for no artifact
        raise TrackingError(
            f"run {run_id} at {mlflow.get_tracking_uri()} keeps no {name!r}. Run the step that makes it, or give the "
            "run that has it."
        )
    return _download(
        client,
        uri=f"{client.api.get_run(run_id).info.artifact_uri}/{name}",
        title=f"{name!r} of run {run_id}",
        kind=kind,
        out=out,
        fingerprint=None,
    )


def download_manifest(client: RetryingClient, version: Version, kind: Kind) -> Manifest:
    """Download the manifest of a version's artifact alone.

    Raises:
        ArtifactError: the download is damaged, of another kind, or contradicts its tag.
    """
    # `models:/` URIs give all files at once only.
    location = client.api.get_logged_model(version.model_id).artifact_location
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        client.transfer(partial(_download_files, f"{location}/{MANIFEST}", out))
        manifest = read_manifest(out)
    if manifest.kind is not kind:
        raise ArtifactError(
            f"{version.title} is an artifact of kind {manifest.kind}, but one of kind {kind} is needed."
        )
    _require_tagged(Artifact(out, manifest, deferred=True), version.fingerprint, version.title)
    return manifest


def _require_alias(client: RetryingClient, name: str, alias: str) -> Version:
    found = version_by_alias(client, name, alias)
    if found is None:
        raise NotRegisteredError(
            f"the registry at {mlflow.get_tracking_uri()} has no {alias!r} of {name!r}. "
            "Run the pipeline that registers it first, or set MLFLOW_TRACKING_URI to the registry that has it."
        )
    return found


def _download(client: RetryingClient, uri: str, title: str, kind: Kind, out: Path, fingerprint: str | None) -> Artifact:
    """Download an artifact from a URI of the store to a folder, and verify it, its fingerprint too if that is known."""
    with tempfile.TemporaryDirectory() as folder:
        # A new folder each time, so that nothing of a failed attempt stays in it.
        source = client.transfer(lambda: _download_files(uri, Path(tempfile.mkdtemp(dir=folder))))
        for name in MLFLOW_FILES:
            (source / name).unlink(missing_ok=True)
        try:
            found = Artifact.load(source, kind)
        except ArtifactError as error:
            raise ArtifactError(f"{title} at {mlflow.get_tracking_uri()} came as {error} {REPAIR}") from error
        _require_tagged(found, fingerprint, f"{title} at {mlflow.get_tracking_uri()}")
        found.copy_to(out)
    return Artifact.load(out, kind)


def _download_files(uri: str, folder: Path) -> Path:
    return Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(folder)))


def _require_tagged(found: Artifact, fingerprint: str | None, title: str) -> None:
    """Refuse an artifact whose fingerprint differs from the registry's tag, which is stored apart from the files."""
    if fingerprint is not None and found.fingerprint != fingerprint:
        raise ArtifactError(
            f"{title} has fingerprint {found.fingerprint} in the store, but its tag in the registry says "
            f"{fingerprint or 'nothing'}: its manifest was edited, or the tag was. {REPAIR} If the tag was edited, set "
            "it back to the fingerprint in the version's description."
        )

"""Versions of registered models as plain records: how they are found and downloaded."""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import mlflow
from mlflow import MlflowClient

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.errors import ArtifactError, NotRegisteredError, TrackingError
from lingraft.tracking.client import connect, ignore_absent, mlflow_errors

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

CHAMPION, PREVIOUS = "champion", "previous"
"""Aliases of a model: the version in production, and the one before it."""
MODELS = "models:/"
"""Scheme of the URI of a version's source, before the id of its logged model."""
_REPAIR = (
    "Delete the version on MLflow's page, and register the same artifact again: its files are then uploaded anew. If "
    "only the tag was edited, set it back to the fingerprint in the version's description."
)
_PAGE = 1000


@dataclass(frozen=True)
class Version:
    """One version of a registered model."""

    name: str
    number: int
    tags: dict[str, str]
    aliases: tuple[str, ...]
    source: str
    """URI of its logged model."""
    description: str
    run_id: str | None

    @classmethod
    def from_mlflow(cls, found: "ModelVersion", aliases: Iterable[str]) -> Self:
        """Build the record from MLflow's answer; its search does not return aliases."""
        return cls(
            name=found.name,
            number=int(found.version),
            tags=dict(found.tags),
            aliases=tuple(sorted(aliases)),
            source=str(found.source),
            description=found.description or "",
            run_id=found.run_id or None,
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
    def kind(self) -> str:
        """Kind of the artifact; empty, as the fingerprint is, if lingraft did not register the version."""
        return self.tags.get("kind", "")

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the artifact."""
        return self.tags.get("fingerprint", "")

    @property
    def primary(self) -> str | None:
        """Fingerprint of the primary that the version belongs to; None for a primary."""
        return self.tags.get("aligned_with")

    def tags_with(self, prefix: str) -> dict[str, str]:
        """Return the tags that begin with a prefix, without it."""
        return {name.removeprefix(prefix): value for name, value in self.tags.items() if name.startswith(prefix)}


def versions(client: MlflowClient, project: str) -> list[Version]:
    """Return every version of a project, sorted by name and number."""
    return _find_versions(client, f"tags.project = '{project}'")


def versions_of(client: MlflowClient, name: str) -> list[Version]:
    """Return every version of a model, sorted by number; none if there is no such model."""
    return _find_versions(client, f"name = '{name}'")


def versions_of_kind(client: MlflowClient, project: str, kind: str) -> list[Version]:
    """Return a project's versions of one kind, by a single request; the records have no aliases."""
    found = _search(client, f"tags.project = '{project}' and tags.kind = '{kind}'")
    return [Version.from_mlflow(each, ()) for each in found]


def projects(client: MlflowClient) -> list[str]:
    """Return the names of projects with registered versions."""
    return sorted({each.tags["project"] for each in _search(client, "") if "project" in each.tags})


def require_version(client: MlflowClient, reference: str) -> Version:
    """Return the version that `NAME@ALIAS` or `NAME/NUMBER` names, as in MLflow's `models:/` addresses."""
    name, at, alias = reference.partition("@")
    if at:
        return require_alias(client, name, alias)
    name, _, number = reference.rpartition("/")
    if not (name and number.isdecimal()):
        raise NotRegisteredError(
            f"models:/{reference} names no version of a model. Give models:/NAME@champion or models:/NAME/NUMBER."
        )
    return version_of(client, name, int(number))


def version_of(client: MlflowClient, name: str, number: int) -> Version:
    """Return one version of a model."""
    with ignore_absent():
        found = client.get_model_version(name, str(number))
        return Version.from_mlflow(found, found.aliases)
    raise NotRegisteredError(
        f"the registry at {mlflow.get_tracking_uri()} has no version {number} of {name!r}. "
        "`lingraft registry show` lists what it has."
    )


def version_by_alias(client: MlflowClient, name: str, alias: str = CHAMPION) -> Version | None:
    """Return the version that an alias points at; None if there is none."""
    with ignore_absent():
        found = client.get_model_version_by_alias(name, alias)
        return Version.from_mlflow(found, found.aliases)
    return None


def require_alias(client: MlflowClient, name: str, alias: str = CHAMPION) -> Version:
    """Return the version that an alias points at."""
    found = version_by_alias(client, name, alias)
    if found is None:
        raise NotRegisteredError(
            f"the registry at {mlflow.get_tracking_uri()} has no {alias!r} of {name!r}. "
            "Run the pipeline that registers it first, or set MLFLOW_TRACKING_URI to the registry that has it."
        )
    return found


def _search(client: MlflowClient, filter_string: str) -> "list[ModelVersion]":
    """Return all versions that MLflow finds, sorted by name and number, without their aliases."""
    found: list[ModelVersion] = []
    token: str | None = None
    while True:
        page = client.search_model_versions(filter_string, _PAGE, ["name ASC", "version_number ASC"], token)
        found += page
        token = page.token
        if not token:
            return found


def _find_versions(client: MlflowClient, filter_string: str) -> list[Version]:
    found = _search(client, filter_string)
    aliases = {name: client.get_registered_model(name).aliases for name in {each.name for each in found}}
    records = [
        Version.from_mlflow(each, [key for key, at in aliases[each.name].items() if str(at) == str(each.version)])
        for each in found
    ]
    return sorted(records, key=lambda each: (each.name, each.number))


def tag(name: str, key: str, value: str) -> None:
    """Set a tag on the champion of a model."""
    client = connect()
    client.set_model_version_tag(name, str(require_alias(client, name).number), key, value)


def tags_of(name: str) -> dict[str, str]:
    """Return the tags of the champion of a model."""
    return require_alias(connect(), name).tags


def fetch(name: str, kind: Kind, out: Path, alias: str = CHAMPION) -> Artifact:
    """Download a registered artifact to a folder, and verify it."""
    return download(require_alias(connect(), name, alias), kind, out)


def download(version: Version, kind: Kind, out: Path) -> Artifact:
    """Download a version's artifact to a folder, and verify it."""
    return _download(version.source, version.title, kind, out, version.fingerprint)


def fetch_run_artifact(run_id: str, name: str, kind: Kind, out: Path) -> Artifact:
    """Download an artifact of a run to a folder, and verify it."""
    client = connect()
    if not client.list_artifacts(run_id, name):  # MLflow's `runs:/` mistakes a server that is down for no artifact
        raise TrackingError(
            f"run {run_id} at {mlflow.get_tracking_uri()} keeps no {name!r}. Run the step that makes it, or give the "
            "run that has it."
        )
    return _download(f"{client.get_run(run_id).info.artifact_uri}/{name}", f"{name!r} of run {run_id}", kind, out)


def _download(uri: str, title: str, kind: Kind, out: Path, fingerprint: str | None = None) -> Artifact:
    """Download an artifact to a folder, and verify it; also its fingerprint by the tag, which lies in the database."""
    title = f"{title} at {mlflow.get_tracking_uri()}"
    with tempfile.TemporaryDirectory() as folder:
        with mlflow_errors():
            source = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=folder))
        try:
            found = Artifact.load(source, kind)
        except ArtifactError as error:
            raise ArtifactError(f"{title} came as {error} {_REPAIR}") from error
        if fingerprint is not None and found.fingerprint != fingerprint:
            raise ArtifactError(
                f"{title} has fingerprint {found.fingerprint} in the store, but its tag in the registry says "
                f"{fingerprint or 'nothing'}: its manifest was edited, or the tag was. {_REPAIR}"
            )
        found.copy_to(out)
    return Artifact.load(out, kind)

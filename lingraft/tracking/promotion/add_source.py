"""Register primaries and tasks that commands have made, so that languages can be added to them."""

from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts.artifact import Artifact, Kind, read_manifest
from lingraft.artifacts.names import primary_of, task_of
from lingraft.errors import ArtifactError, NotRegisteredError, PromotionError
from lingraft.tracking.client import RetryingClient, retrying_client
from lingraft.tracking.promotion.promote import promote
from lingraft.tracking.registry import register
from lingraft.tracking.runs import project_run, stage
from lingraft.tracking.versions import Version, champion_of, projects, versions

KINDS = (Kind.PRIMARY, Kind.TASK)


@dataclass(frozen=True)
class AddedArtifact:
    """A registered version, and the champion of its model."""

    model: str
    version: int
    champion: int | None
    """Number of the version that is champion now; None if there is none."""


def add_artifact(folder: Path, asked_by: str, project: str | None = None) -> AddedArtifact:
    """Register a primary or a task. The first of its kind becomes champion; others need a promotion.

    Args:
        folder: artifact.
        asked_by: requester, for the record of decisions.
        project: name of the project; for a task, by default the one that has its primary.

    Raises:
        ArtifactError: it is damaged, or an artifact of another kind.
        PromotionError: a primary was given without a project, or several projects have a task's primary.
        NotRegisteredError: no project has a task's primary.
        TrackingError: the registry refuses, or stays down.
    """
    kind = read_manifest(folder).kind
    if kind not in KINDS:
        raise ArtifactError(
            f"{folder} is an artifact of kind {kind}. Give a primary, a task, or what `lingraft add-language` left."
        )
    made = Artifact.load(folder, kind)
    manifest = made.manifest
    with retrying_client() as client:
        name = _require_project(folder, project) if kind is Kind.PRIMARY else _project_of_primary(client, made, project)
        model = primary_of(name) if kind is Kind.PRIMARY else task_of(name, manifest.detail("task", str))
    settings = {"folder": folder.name, "settings": manifest.recipe}
    note = f"A {kind} that was made by commands is registered."
    with project_run(name, f"add-{kind}", settings, note) as run, stage(run, f"register-{kind}") as step:
        tags = {key: manifest.details.get(key) for key in ("seed", "dev_score")}
        aliases = (f"seed-{tags['seed']}",) if kind is Kind.TASK else ()
        version = int(register(model, folder, kind, step, tags, aliases))
        champion = champion_of(step.client, model)
        if champion is None or _has_other_primary(champion, made):
            promote(step.client, model, version, asked_by)
        standing = champion_of(step.client, model)
    return AddedArtifact(model, version, standing.number if standing else None)


def _require_project(folder: Path, project: str | None) -> str:
    if project is None:
        raise PromotionError(f"{folder} is a primary. Say which project it is for: --project NAME.")
    return project


def _project_of_primary(client: RetryingClient, made: Artifact, project: str | None) -> str:
    """Return the project that has the primary of a task."""
    mark = str(made.manifest.aligned_with)
    primary, _ = find_primary(client, f"{made.folder} belongs", mark, project)
    return primary.tags["project"]


def _has_other_primary(champion: Version, made: Artifact) -> bool:
    """Whether the champion of a task belongs to another primary than the new artifact."""
    return made.manifest.kind is Kind.TASK and champion.tags.get("aligned_with") != made.manifest.aligned_with


def find_primary(client: RetryingClient, what: str, mark: str, project: str | None) -> tuple[Version, list[Version]]:
    """Return the registered primary with a fingerprint, and all versions of its project.

    Args:
        client: MLflow, with retries.
        what: subject of the error messages, such as "the embeddings belong".
        mark: fingerprint of the primary.
        project: project to search; all projects if None.

    Raises:
        NotRegisteredError: no project has it.
        PromotionError: several projects have it, and `project` is None.
    """
    known = projects(client)
    by_project = {name: versions(client, name) for name in known if project in {None, name}}
    matching = {
        name: each
        for name, found in by_project.items()
        for each in found
        if each.kind == Kind.PRIMARY and each.fingerprint == mark
    }
    if not matching:
        where = f"project {project!r} does not have it" if project else f"of the projects {known}, none has it"
        raise NotRegisteredError(
            f"{what} to primary {mark[:12]}, and {where}. Add that primary first: `lingraft registry add PRIMARY "
            "--project NAME`."
        )
    if len(matching) > 1:
        raise PromotionError(f"projects {sorted(matching)} have primary {mark[:12]}. Name one with --project.")
    [name] = matching
    return matching[name], by_project[name]

"""`lingraft registry add`: register what commands have made, which is a primary, a task, or a language.

A language is promoted through the gate, and the project's bundles are renewed with it.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST, Kind, read_manifest
from lingraft.artifacts.names import bundle_of, embeddings_of, primary_of, task_of
from lingraft.config.gate import Gate
from lingraft.config.tasks import PRIMARY
from lingraft.errors import ArtifactError, NotRegisteredError, PromotionError
from lingraft.stages.results import load_language
from lingraft.tasks.dev_score import dev_score_and_seed
from lingraft.tracking.client import RetryingClient, retrying_client
from lingraft.tracking.promotion.bundle_gate import NO_CHANGES, served_content
from lingraft.tracking.promotion.evidence import register_judged
from lingraft.tracking.promotion.promote import PromotionResult, promote
from lingraft.tracking.promotion.renewal import Renewal, renew
from lingraft.tracking.registry import register
from lingraft.tracking.runs import project_run, stage
from lingraft.tracking.versions import Version, champion_of, download, projects, versions

_EMBEDDINGS = "embeddings"
_EVALUATION = "evaluation"
"""Folders that `lingraft add-language` writes."""


@dataclass(frozen=True)
class RegisteredArtifact:
    """A version that was registered, and the champion of its model."""

    model: str
    version: int
    champion: int | None
    """Number of the version that is champion now; None if there is none."""


@dataclass(frozen=True)
class RegisteredLanguage:
    """A language's version that was registered, the gate's decision, and the renewed bundles."""

    version: int
    decided: PromotionResult
    renewals: dict[str, Renewal]
    """Renewals by the bundle's registered name; none if the gate refused the embeddings."""


def add_artifact(folder: Path, asked_by: str, project: str | None = None) -> RegisteredArtifact:
    """Register a primary or a task. The first of its kind becomes champion; others need a promotion.

    Args:
        project: name of the project; for a task, by default the one that has its primary.

    Raises:
        ArtifactError: it is damaged, or an artifact of another kind.
        PromotionError: a primary was given without a project, or several projects have a task's primary.
        NotRegisteredError: no project has a task's primary.
    """
    kind = read_manifest(folder).kind
    if kind not in {Kind.PRIMARY, Kind.TASK}:
        raise ArtifactError(
            f"{folder} is an artifact of kind {kind}. Give a primary, a task, or what `lingraft add-language` left."
        )
    manifest = Artifact.load(folder, kind).manifest
    if kind is Kind.TASK:
        with retrying_client() as client:
            primary, _ = _find_primary(client, f"{folder} belongs", str(manifest.aligned_with), project)
        project = primary.tags["project"]
        model = task_of(project, manifest.detail("task", str))
    elif project is None:
        raise PromotionError(f"{folder} is a primary. Say which project it is for: --project NAME.")
    else:
        model = primary_of(project)
    settings = {"folder": folder.name, "settings": manifest.recipe}
    note = f"A {kind} that was made by commands is registered."
    with project_run(project, f"add-{kind}", settings, note) as run, stage(run, f"register-{kind}") as step:
        tags = {key: manifest.details.get(key) for key in ("seed", "dev_score")}
        aliases = (f"seed-{tags['seed']}",) if kind is Kind.TASK else ()
        version = int(register(model, folder, kind, run=step, tags=tags, aliases=aliases))
        champion = champion_of(step.client, model)
        is_of_other_primary = champion and champion.tags.get("aligned_with") != manifest.aligned_with
        if champion is None or (kind is Kind.TASK and is_of_other_primary):
            promote(step.client, model, version, asked_by)
            champion = champion_of(step.client, model)
    return RegisteredArtifact(model, version, champion.number if champion else None)


def add_language(folder: Path, asked_by: str, gate: Gate, project: str | None = None) -> RegisteredLanguage:
    """Register the embeddings of a language, promote them if they pass the gate, and renew the bundles.

    These are the bundles of all tasks that the registry has for the primary, and that of the primary itself if there
    is one.

    Args:
        project: name of the project, needed if several projects have the primary.

    Raises:
        ArtifactError: the folder lacks embeddings or their evaluation, or is damaged.
        NotRegisteredError: no project has their primary.
        PromotionError: several projects have their primary, and none was named.
        MissingExtraError: the extra 'export' or 'cpu' is not installed.
    """
    if missing := [name for name in (_EMBEDDINGS, _EVALUATION) if not (folder / name / MANIFEST).is_file()]:
        raise ArtifactError(
            f"{folder} is not what `lingraft add-language` leaves: it has no {' and no '.join(missing)}. Give the "
            "folder that was its --out."
        )
    embeddings = Artifact.load(folder / _EMBEDDINGS, Kind.EMBEDDINGS)
    evaluation = Artifact.load(folder / _EVALUATION, Kind.EVALUATION)
    result = load_language(evaluation.folder)
    from lingraft.export import measure_parity

    with retrying_client() as client:
        aligned_with = str(embeddings.manifest.aligned_with)
        primary, found = _find_primary(client, "the embeddings belong", aligned_with, project)
    name = primary.tags["project"]
    settings = {"folder": folder.name, "adaptation": embeddings.manifest.recipe, "gate": gate.model_dump(mode="json")}
    note = f"A language that `lingraft add-language` learned is registered: `{result.language}`."
    with project_run(name, "add-language", settings, note) as run, tempfile.TemporaryDirectory() as work:
        models = _RegisteredModels(primary, found, Path(work))
        with stage(run, f"register-{result.language}") as step:
            parity_by_task = {
                task: measure_parity(models.folder(step.client, body), embeddings.folder)
                for task, body in models.tasks.items()
            }
            version = int(
                register_judged(
                    stage=step,
                    name=embeddings_of(name, result.language),
                    embeddings=embeddings.folder,
                    evaluation=evaluation,
                    gate=gate,
                    parity=parity_by_task,
                    more={},
                )
            )
            decided = promote(step.client, embeddings_of(name, result.language), version, asked_by, gate)
        renewals = dict(_renew_bundles(run, embeddings, asked_by, models)) if decided.after == version else {}
    return RegisteredLanguage(version, decided, renewals)


def _find_primary(
    client: RetryingClient, subject: str, fingerprint: str, project: str | None
) -> tuple[Version, list[Version]]:
    """Return the registered primary with a fingerprint, and all versions of its project.

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
        if each.kind == Kind.PRIMARY and each.fingerprint == fingerprint
    }
    if not matching:
        where = f"project {project!r} does not have it" if project else f"of the projects {known}, none has it"
        raise NotRegisteredError(
            f"{subject} to primary {fingerprint[:12]}, and {where}. Add that primary first: `lingraft registry add "
            "PRIMARY --project NAME`."
        )
    if len(matching) > 1:
        raise PromotionError(f"projects {sorted(matching)} have primary {fingerprint[:12]}. Name one with --project.")
    [name] = matching
    return matching[name], by_project[name]


class _RegisteredModels:
    """A registered primary and its tasks, each downloaded when it is first needed."""

    def __init__(self, primary: Version, found: Sequence[Version], work: Path) -> None:
        self.primary = primary
        self._work = work
        tasks = [
            each for each in found if each.kind == Kind.TASK and each.tags.get("aligned_with") == primary.fingerprint
        ]
        self.tasks = {
            name: _best_task([each for each in tasks if each.tags["task"] == name])
            for name in sorted({each.tags["task"] for each in tasks})
        }
        """Champion of each task on this primary, else the task with the best dev score."""
        own = bundle_of(primary.tags["project"], PRIMARY)
        self.serves_primary = any(each.name == own for each in found)

    def folder(self, client: RetryingClient, version: Version) -> Path:
        place = self._work / f"{version.name}-{version.number}"
        if not place.exists():
            download(client, version, Kind(str(version.kind)), place)
        return place


def _best_task(tasks: Sequence[Version]) -> Version:
    return max(tasks, key=lambda each: (each.is_champion, dev_score_and_seed(each.tags)))


def _renew_bundles(
    run: str, embeddings: Artifact, asked_by: str, models: _RegisteredModels
) -> Iterator[tuple[str, Renewal]]:
    from lingraft.export import export_bundle

    project = models.primary.tags["project"]
    tasks: dict[str, Version | None] = {**models.tasks, **({PRIMARY: None} if models.serves_primary else {})}
    for task, version in tasks.items():
        name = bundle_of(project, task)
        with stage(run, f"bundle-{task}") as step, tempfile.TemporaryDirectory() as work:
            primary = models.folder(step.client, models.primary)
            body = models.folder(step.client, version) if version else None

            def make(folders: Sequence[Path]) -> Artifact:
                served = served_content(step.client, champion_of(step.client, name))  # noqa: B023  called in this turn
                examples = (served.examples or None) if served else None
                out = Path(tempfile.mkdtemp(dir=work)) / "bundle"
                return export_bundle(primary, body, folders, out, prompts=examples)  # noqa: B023

            renewal = renew(
                stage=step,
                name=name,
                primary=models.primary.fingerprint,
                brought={str(embeddings.manifest.language): embeddings.folder},
                make=make,
                tags={},
                allowed=NO_CHANGES,
                asked_by=asked_by,
            )
            step.record(renewal.made, {})
            yield name, renewal

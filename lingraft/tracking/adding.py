"""`lingraft registry add`: register what commands have made, which is a primary, a task, or a language.

A language is promoted through the gate, and the project's bundles are renewed with it.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mlflow import MlflowClient

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST, Kind, read_manifest
from lingraft.artifacts.names import bundle_of, embeddings_of, primary_of, task_of
from lingraft.config.gate import Gate
from lingraft.config.tasks import PRIMARY
from lingraft.errors import ArtifactError, NotRegisteredError, PromotionError
from lingraft.stages.results import load_language
from lingraft.tasks.dev_score import dev_score_and_seed
from lingraft.tracking.bundles import NewBundle, renew_bundle
from lingraft.tracking.client import connect
from lingraft.tracking.evidence import register_judged
from lingraft.tracking.promotion import NO_CHANGES, Verdict, promote
from lingraft.tracking.registry import register
from lingraft.tracking.runs import StageRun, project_run, stage
from lingraft.tracking.tags import EXAMPLES
from lingraft.tracking.versions import Version, download, projects, version_by_alias, versions


def add_artifact(folder: Path, asked_by: str, project: str | None = None) -> tuple[str, int, int | None]:
    """Register a primary or a task. The first of its kind becomes champion; others need a promotion.

    Args:
        project: name of the project; for a task, by default the one that has its primary.

    Returns:
        Its model and version, and the version that is champion now.
    """
    kind = read_manifest(folder).kind
    if kind not in {Kind.PRIMARY, Kind.TASK}:
        raise ArtifactError(
            f"{folder} is an artifact of kind {kind}. Give a primary, a task, or what `lingraft add-language` left."
        )
    manifest = Artifact.load(folder, kind).manifest
    if kind is Kind.TASK:
        primary, _ = _find_primary(connect(), f"{folder} belongs", str(manifest.aligned_with), project)
        project = primary.tags["project"]
        model = task_of(project, manifest.detail("task", str))
    elif project is None:
        raise PromotionError(f"{folder} is a primary. Say which project it is for: --project NAME.")
    else:
        model = primary_of(project)
    note = f"A {kind} that was made by commands is registered."
    settings = {"folder": folder.name, "settings": manifest.recipe}
    with project_run(project, f"add-{kind}", settings, note) as run, stage(run, f"register-{kind}") as step:
        tags = {key: manifest.details.get(key) for key in ("seed", "dev_score")}
        aliases = (f"seed-{tags['seed']}",) if kind is Kind.TASK else ()
        version = register(model, folder, kind, run=step, tags=tags, aliases=aliases)
        champion = version_by_alias(step.client, model)
        if champion is None or (kind is Kind.TASK and champion.primary != manifest.aligned_with):
            promote(step.client, model, version, asked_by)
            champion = version_by_alias(step.client, model)
    return model, version, champion.number if champion else None


def add_language(
    folder: Path, asked_by: str, gate: Gate, project: str | None = None
) -> tuple[Verdict, dict[str, NewBundle]]:
    """Register the embeddings of a language, promote them if they pass the gate, and renew the bundles.

    These are the bundles of all tasks that the registry has for the primary, and that of the primary itself if there
    is one.

    Args:
        project: name of the project, needed if several projects have the primary.

    Returns:
        The verdict on the embeddings, and the bundles by name; none if the gate refused the embeddings.
    """
    if missing := [name for name in (Kind.EMBEDDINGS, Kind.EVALUATION) if not (folder / name / MANIFEST).is_file()]:
        raise ArtifactError(
            f"{folder} is not what `lingraft add-language` leaves: it has no {' and no '.join(missing)}. Give the "
            "folder that was its --out."
        )
    embeddings = Artifact.load(folder / Kind.EMBEDDINGS, Kind.EMBEDDINGS)
    evaluation = Artifact.load(folder / Kind.EVALUATION, Kind.EVALUATION)
    language = load_language(evaluation.folder).language
    from lingraft.export import measure_parity

    aligned_with = str(embeddings.manifest.aligned_with)
    primary, found = _find_primary(connect(), "the embeddings belong", aligned_with, project)
    name = primary.tags["project"]
    tasks = _tasks_of(primary, found)
    serves_primary = any(each.name == bundle_of(name, PRIMARY) for each in found)
    settings = {"folder": folder.name, "adaptation": embeddings.manifest.recipe, "gate": gate.model_dump(mode="json")}
    note = f"A language that `lingraft add-language` learned is registered: `{language}`."
    bundles = {}
    with project_run(name, "add-language", settings, note) as run, tempfile.TemporaryDirectory() as work:
        with stage(run, f"register-{language}") as step:
            bodies = {task: download(body, Kind.TASK, Path(work) / task).folder for task, body in tasks.items()}
            parity = {task: measure_parity(body, embeddings.folder) for task, body in bodies.items()}
            model = embeddings_of(name, language)
            version = register_judged(step, model, embeddings.folder, evaluation, gate=gate, parity=parity)
            verdict = promote(step.client, model, version, asked_by, gate)
        if verdict.passed:
            source = Path(work) / "of-primary"
            for task in [*tasks, *([PRIMARY] if serves_primary else [])]:
                bundle = bundle_of(name, task)
                with stage(run, f"bundle-{task}") as step:
                    if not source.exists():
                        download(primary, Kind.PRIMARY, source)
                    bundles[bundle] = _renew(step, bundle, source, bodies.get(task), embeddings, asked_by=asked_by)
    return verdict, bundles


def _renew(
    step: StageRun, name: str, primary: Path, task: Path | None, embeddings: Artifact, asked_by: str
) -> NewBundle:
    from lingraft.export import export_bundle

    with tempfile.TemporaryDirectory() as work:

        def make(folders: Sequence[Path]) -> Artifact:
            served = version_by_alias(step.client, name)
            examples = json.loads(served.tags.get(EXAMPLES, "{}")) if served else {}
            out = Path(tempfile.mkdtemp(dir=work)) / "bundle"
            return export_bundle(primary, task, folders, out, prompts=examples or None)

        renewed = renew_bundle(
            stage=step,
            name=name,
            primary=str(embeddings.manifest.aligned_with),
            brought={str(embeddings.manifest.language): embeddings.folder},
            make=make,
            tags={},
            allowed=NO_CHANGES,
            asked_by=asked_by,
        )
        step.record(renewed.made, {})
    return renewed


def _find_primary(
    client: MlflowClient, subject: str, fingerprint: str, project: str | None
) -> tuple[Version, list[Version]]:
    """Return the registered primary with a fingerprint, and all versions of its project."""
    known = projects(client)
    by_project = {name: versions(client, name) for name in known if project in {None, name}}
    matching = [
        each
        for found in by_project.values()
        for each in found
        if each.kind == Kind.PRIMARY and each.fingerprint == fingerprint
    ]
    if not matching:
        where = f"project {project!r} does not have it" if project else f"of the projects {known}, none has it"
        raise NotRegisteredError(
            f"{subject} to primary {fingerprint[:12]}, and {where}. Add that primary first: `lingraft registry add "
            "PRIMARY --project NAME`."
        )
    if len(matching) > 1:
        names = [each.tags["project"] for each in matching]
        raise PromotionError(f"projects {names} have primary {fingerprint[:12]}. Name one with --project.")
    return matching[0], by_project[matching[0].tags["project"]]


def _tasks_of(primary: Version, found: Sequence[Version]) -> dict[str, Version]:
    """Return the champion of each task on a primary, else the version with the best dev score."""
    ours = [each for each in found if each.kind == Kind.TASK and each.primary == primary.fingerprint]
    ranked = sorted(ours, key=lambda each: (each.is_champion, dev_score_and_seed(each.tags)))
    return {each.tags["task"]: each for each in ranked}

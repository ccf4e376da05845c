"""Register a language of `lingraft add-language`, promote it through the gate, and renew the bundles."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts.artifact import MANIFEST, Artifact, Kind
from lingraft.artifacts.names import bundle_of, embeddings_of
from lingraft.config.gate import Gate
from lingraft.config.tasks import PRIMARY
from lingraft.errors import ArtifactError
from lingraft.stages.results import LanguageResult, load_language
from lingraft.tracking.client import RetryingClient, retrying_client
from lingraft.tracking.promotion.add_source import find_primary
from lingraft.tracking.promotion.bundle_gate import NO_CHANGES
from lingraft.tracking.promotion.bundles import served_examples
from lingraft.tracking.promotion.evidence import register_judged
from lingraft.tracking.promotion.promote import PromotionResult, promote
from lingraft.tracking.promotion.renewal import Renewal, renew
from lingraft.tracking.runs import StageRun, project_run, stage
from lingraft.tracking.versions import Version, download

_EMBEDDINGS, _EVALUATION = "embeddings", "evaluation"
"""Folders that `lingraft add-language` writes."""


@dataclass(frozen=True)
class RegisteredLanguage:
    """Result of adding a language: its version, the gate's decision, and the renewed bundles."""

    version: int
    decided: PromotionResult
    renewals: dict[str, Renewal]
    """Renewals by the bundle's registered name; none if the gate refused the embeddings."""


def add_language(folder: Path, asked_by: str, gate: Gate, project: str | None = None) -> RegisteredLanguage:
    """Register the embeddings of a language, promote them if they pass the gate, and renew the bundles.

    These are the bundles of all tasks that the registry has for the primary, and that of the primary itself if there
    is one.

    Args:
        folder: output folder of `lingraft add-language`.
        asked_by: requester, for the record of decisions.
        gate: conditions that the embeddings must meet.
        project: name of the project, needed if several projects have the primary.

    Raises:
        ArtifactError: the folder lacks embeddings or their evaluation, or is damaged.
        NotRegisteredError: no project has their primary.
        PromotionError: several projects have their primary, and none was named.
        MissingExtraError: the extra 'export' or 'cpu' is not installed.
        TrackingError: the registry refuses, or stays down.
    """
    embeddings, evaluation = _load_artifacts(folder)
    result = load_language(evaluation.folder)
    with retrying_client() as client:
        mark = str(embeddings.manifest.aligned_with)
        primary, found = find_primary(client, "the embeddings belong", mark, project)
    name = primary.tags["project"]
    settings = {"folder": folder.name, "adaptation": embeddings.manifest.recipe, "gate": gate.model_dump(mode="json")}
    note = f"A language that `lingraft add-language` learned is registered: `{result.language}`."
    with project_run(name, "add-language", settings, note) as run, tempfile.TemporaryDirectory() as work:
        models = _RegisteredModels(primary, found, Path(work))
        with stage(run, f"register-{result.language}") as step:
            version, decided = _register_and_promote(step, embeddings, evaluation, result, gate, asked_by, models)
        accepted = decided.after == version
        renewals = dict(_renew_bundles(run, embeddings, asked_by, models)) if accepted else {}
    return RegisteredLanguage(version, decided, renewals)


def _load_artifacts(folder: Path) -> tuple[Artifact, Artifact]:
    if missing := [name for name in (_EMBEDDINGS, _EVALUATION) if not (folder / name / MANIFEST).is_file()]:
        raise ArtifactError(
            f"{folder} is not what `lingraft add-language` leaves: it has no {' and no '.join(missing)}. Give the "
            "folder that was its --out."
        )
    return Artifact.load(folder / _EMBEDDINGS, Kind.EMBEDDINGS), Artifact.load(folder / _EVALUATION, Kind.EVALUATION)


class _RegisteredModels:
    """A registered primary and its tasks, each downloaded when it is first needed."""

    def __init__(self, primary: Version, found: Sequence[Version], work: Path) -> None:
        self.primary = primary
        self._work = work
        ours = [each for each in found if each.tags.get("aligned_with") == primary.fingerprint]
        self.tasks = {
            task: _best_task([each for each in ours if each.kind == Kind.TASK and each.tags["task"] == task])
            for task in sorted({each.tags["task"] for each in ours if each.kind == Kind.TASK})
        }
        """Champion of each task on this primary, else the task with the best dev score."""
        own = bundle_of(primary.tags["project"], PRIMARY)
        self.serves_primary = any(each.name == own for each in found)

    def folder(self, client: RetryingClient, version: Version) -> Path:
        """Return the folder of a version's artifact, downloaded if need be."""
        place = self._work / f"{version.name}-{version.number}"
        if not place.exists():
            download(client, version, Kind(str(version.kind)), place)
        return place


def _best_task(tasks: Sequence[Version]) -> Version:
    merit = {each.number: (float(each.tags.get("dev_score", 0)), int(each.tags.get("seed", 0))) for each in tasks}
    return max(tasks, key=lambda each: (each.is_champion, *merit[each.number]))


def _register_and_promote(
    step: StageRun,
    embeddings: Artifact,
    evaluation: Artifact,
    result: LanguageResult,
    gate: Gate,
    asked_by: str,
    models: _RegisteredModels,
) -> tuple[int, PromotionResult]:
    from lingraft.export import measure_parity

    parity_by_task = {
        task: measure_parity(models.folder(step.client, version), embeddings.folder)
        for task, version in models.tasks.items()
    }
    name = embeddings_of(step.project, result.language)
    version = int(register_judged(step, name, embeddings.folder, evaluation, gate, parity_by_task, {}))
    return version, promote(step.client, name, version, asked_by, gate)


def _renew_bundles(
    run: str, embeddings: Artifact, asked_by: str, models: _RegisteredModels
) -> Iterator[tuple[str, Renewal]]:
    from lingraft.export import export_bundle

    tasks: dict[str, Version | None] = {**models.tasks, **({PRIMARY: None} if models.serves_primary else {})}
    for task, version in tasks.items():
        name = bundle_of(models.primary.tags["project"], task)
        with stage(run, f"bundle-{task}") as step, tempfile.TemporaryDirectory() as work:
            primary = models.folder(step.client, models.primary)
            body = models.folder(step.client, version) if version else None
            attempts = 0

            def make(folders: Sequence[Path]) -> Artifact:
                nonlocal attempts
                attempts += 1
                examples = served_examples(step.client, name)  # noqa: B023  called in this turn, like the next line
                return export_bundle(primary, body, folders, Path(work) / str(attempts), prompts=examples)  # noqa: B023

            brought = {str(embeddings.manifest.language): embeddings.folder}
            mark = models.primary.fingerprint
            renewal = renew(step, name, mark, brought, make, {}, NO_CHANGES, asked_by)
            step.record(renewal.made, {})
            yield name, renewal

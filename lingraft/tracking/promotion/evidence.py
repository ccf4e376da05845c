"""Evidence about a version, brought from where it was kept when the version was judged."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.config.gate import Gate
from lingraft.errors import GateError, TrackingError
from lingraft.stages.results import load_items, load_language, zero_shot
from lingraft.tracking.client import RetryingClient
from lingraft.tracking.metrics_queue import UnreachableError
from lingraft.tracking.promotion.gate import Evidence
from lingraft.tracking.registry import download_run_artifact, register
from lingraft.tracking.runs import StageRun
from lingraft.tracking.tags import PARITY
from lingraft.tracking.versions import Version, set_tags

EVALUATION = "evaluation"
"""Name under which a run keeps an evaluation, and the tag of the version that has the evaluation's fingerprint."""
EVALUATION_RUN, GATE = "evaluation_run", "gate"
"""Tags: where the evaluation is kept, and the recipe's gate as JSON."""
_OWN_INPUTS = {"embeddings", "primary", "initial"}
"""Hashes of an evaluation that are of what is judged, and not of what it is judged on."""


def register_judged(
    stage: StageRun,
    name: str,
    embeddings: Path,
    evaluation: Artifact,
    gate: Gate,
    parity: Mapping[str, float],
    more: Mapping[str, object],
) -> str:
    """Register embeddings with all that the gate asks for; returns the version.

    Args:
        stage: run that they come from; it keeps the evaluation.
        name: registered model.
        embeddings: artifact.
        evaluation: of these embeddings.
        gate: of the project.
        parity: by task, the largest difference of a logit between ONNX Runtime and PyTorch.
        more: tags.

    Raises:
        ArtifactError: an artifact is damaged.
        TrackingError: the registry refuses, or stays down.
    """
    result = load_language(evaluation.folder)
    stage.log_artifact(evaluation, EVALUATION)
    tags: dict[str, object] = {EVALUATION_RUN: stage.run_id, GATE: gate.model_dump_json(), **more}
    tags |= {EVALUATION: evaluation.fingerprint, "overlap": result.overlap}
    tags |= result.alignment_metrics
    tags |= result.masked.model_dump() | zero_shot(result) | {f"{PARITY}{task}": each for task, each in parity.items()}
    return register(name, embeddings, Kind.EMBEDDINGS, stage, tags)


def load_evidence(client: RetryingClient, version: Version) -> Evidence:
    """What was found when a version of embeddings was judged.

    Raises:
        GateError: it was registered without, or what was kept is gone, was exchanged, or is of other embeddings.
        TrackingError: the registry stays down.
        ArtifactError: what was kept is damaged.
    """
    run = version.tags.get(EVALUATION_RUN)
    if run is None:
        raise GateError(f"{version.title} was registered without its evaluation. Register it by the language pipeline.")
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / EVALUATION
        try:
            made = download_run_artifact(client, run, EVALUATION, Kind.EVALUATION, kept)
        except UnreachableError:
            raise
        except TrackingError as error:
            raise GateError(
                f"the evaluation of {version.title}, kept by run {run}, is gone: {error} Register the version again by "
                "the language pipeline, or restore the run."
            ) from error
        if made.fingerprint != version.tags.get(EVALUATION):
            raise GateError(
                f"run {run} keeps an evaluation of fingerprint {made.fingerprint}, but the tag {EVALUATION!r} of "
                f"{version.title} says {version.tags.get(EVALUATION, 'nothing')}: one of the two was changed "
                "after the version was judged. Restore what the run kept, or judge the version again (`lingraft "
                "registry pull`, `lingraft evaluate`, `lingraft registry judge`)."
            )
        result, items = load_language(kept), load_items(kept)
    if result.embeddings != version.fingerprint:
        raise GateError(
            f"run {run} keeps the evaluation of embeddings {result.embeddings[:12]}, but {version.title} is "
            f"{version.fingerprint[:12]}. Register the version again by the language pipeline."
        )
    parity = {key.removeprefix(PARITY): value for key, value in version.tags.items() if key.startswith(PARITY)}
    return Evidence(
        title=f"version {version.number}",
        aligned_with=version.tags.get("aligned_with"),
        result=result,
        items=items,
        evaluated_on={name: mark for name, mark in made.manifest.data_hashes.items() if name not in _OWN_INPUTS},
        parity={task: float(value) for task, value in parity.items()},
    )


def replace_evidence(stage: StageRun, version: Version, evaluation: Path) -> None:
    """Let a version be compared by another judgement of it from now on; the run of the one before keeps that.

    Raises:
        GateError: it is a judgement of other embeddings, or on another primary.
        ArtifactError: it is damaged, or no evaluation.
        TrackingError: the registry refuses, or stays down.
    """
    made, result = Artifact.load(evaluation, Kind.EVALUATION), load_language(evaluation)
    judged, needed = (result.embeddings, result.primary), (version.fingerprint, version.tags.get("aligned_with"))
    if judged != needed:
        raise GateError(
            f"{evaluation} judges embeddings {judged[0][:12]} on primary {judged[1][:12]}, but {version.title} is "
            f"{needed[0][:12]} of primary {str(needed[1])[:12]}. Pull it, and judge that by `lingraft evaluate`."
        )
    load_items(evaluation)
    stage.log_artifact(made, EVALUATION)
    set_tags(stage.client, version, {EVALUATION: made.fingerprint, EVALUATION_RUN: stage.run_id})


def recorded_gate(version: Version) -> Gate:
    """The gate of the recipe that a version was registered with.

    Raises:
        GateError: it was registered without.
    """
    if GATE not in version.tags:
        raise GateError(f"{version.title} was registered without a gate. Give the recipe whose [gate] it must pass.")
    return Gate.model_validate_json(version.tags[GATE])

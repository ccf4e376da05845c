"""Evidence about a version of embeddings: stored with the run that evaluated it, loaded for the gate."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.gate import Gate
from lingraft.errors import GateError, TrackingError
from lingraft.stages.results import load_items, load_language, zero_shot
from lingraft.tracking.client import UnreachableError
from lingraft.tracking.gate import Evidence
from lingraft.tracking.registry import register
from lingraft.tracking.runs import StageRun
from lingraft.tracking.tags import PARITY
from lingraft.tracking.versions import Version, fetch_run_artifact

EVALUATION = "evaluation"
"""Name of the evaluation among a run's artifacts, and of the version's tag with the evaluation's fingerprint."""
EVALUATION_RUN = "evaluation_run"
"""Tag of a version with the id of the run that stores its evaluation."""
GATE = "gate"
"""Tag of a version with the recipe's gate as JSON."""
_OWN_INPUTS = {"embeddings", "primary", "initial"}
"""Inputs of an evaluation that are evaluated; all others are data and models to evaluate on."""


def register_judged(
    stage: StageRun,
    name: str,
    embeddings: Path,
    evaluation: Artifact,
    gate: Gate,
    parity: Mapping[str, float],
    recipe: str | None = None,
) -> int:
    """Register embeddings with all evidence that the gate needs, and return the version.

    Args:
        stage: run that registers them, which also stores the evaluation.
        parity: largest difference of a logit between ONNX Runtime and PyTorch, by task.
        recipe: digest of the pipeline's recipe.
    """
    result = load_language(evaluation.folder)
    stage.log_artifact(evaluation, EVALUATION)
    tags: dict[str, object] = {
        EVALUATION_RUN: stage.run_id,
        EVALUATION: evaluation.fingerprint,
        GATE: gate.model_dump_json(),
        "overlap": result.overlap,
        "recipe": recipe,
        **result.alignment_metrics,
        **result.masked_scores,
        **zero_shot(result),
        **{f"{PARITY}{task}": each for task, each in parity.items()},
    }
    return register(name, embeddings, Kind.EMBEDDINGS, stage, tags)


def load_evidence(version: Version, evaluation: Path | None = None) -> Evidence:
    """Load the evaluation of a version of embeddings.

    Args:
        evaluation: a later evaluation of the version, in place of that of its registration.
    """
    if evaluation:
        return _evidence_in(evaluation, version)
    run = version.tags.get(EVALUATION_RUN)
    if run is None:
        raise GateError(f"{version.title} was registered without its evaluation. Register it by the language pipeline.")
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / EVALUATION
        try:
            made = fetch_run_artifact(run, EVALUATION, Kind.EVALUATION, kept)
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
                "after the version was judged. Restore what the run kept, or register the version again."
            )
        return _evidence_in(kept, version)


def _evidence_in(folder: Path, version: Version) -> Evidence:
    made = Artifact.load(folder, Kind.EVALUATION)
    result = load_language(folder)
    if result.embeddings != version.fingerprint:
        raise GateError(
            f"{folder} judges embeddings {result.embeddings[:12]}, but {version.title} is {version.fingerprint[:12]}. "
            "Pull that version, and judge it by `lingraft evaluate`."
        )
    return Evidence(
        title=f"version {version.number}",
        aligned_with=version.primary,
        result=result,
        items=load_items(folder),
        evaluated_on={name: each for name, each in made.manifest.data_hashes.items() if name not in _OWN_INPUTS},
        parity={task: float(value) for task, value in version.tags_with(PARITY).items()},
    )


def recorded_gate(version: Version) -> Gate:
    """Return the gate of the recipe that a version was registered with."""
    if GATE not in version.tags:
        raise GateError(f"{version.title} was registered without a gate. Give the recipe whose [gate] it must pass.")
    return Gate.model_validate_json(version.tags[GATE])

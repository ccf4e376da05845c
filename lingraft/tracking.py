"""The only module that knows MLflow: one run a stage under one run a pipeline, and the registry of artifacts.

Where runs go is `MLFLOW_TRACKING_URI`'s business (with `MLFLOW_TRACKING_TOKEN` and its kin from the environment):
a server on a cluster, a SQLite file on one machine.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lingraft.artifact import MANIFEST, Artifact, Cost, Kind
from lingraft.config import Recipe
from lingraft.errors import ArtifactError, MissingExtraError, NotRegisteredError, TrackingError

try:
    import mlflow
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.exceptions import MlflowException
    from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID
    from mlflow.utils.validation import MAX_PARAMS_TAGS_PER_BATCH
except ImportError as error:
    raise MissingExtraError("mlflow", "tracking") from error

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

    from lingraft.train import Progress

CHAMPION = "champion"
_SQLITE = "sqlite:///"
_ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
"""What MLflow answers where there is no such model, and where the model has no such alias."""


@dataclass(frozen=True)
class StageRun:
    """A stage's run: pass `watch` to the stage, and `record` what came out."""

    run_id: str

    def watch(self, point: "Progress") -> None:
        """Log one point of a learning curve against steps, tokens and FLOPs."""
        now_ms = int(time.time() * 1000)
        axes = _against_all_axes({"loss": point.loss}, point.cost)
        metrics = [Metric(key, value, now_ms, at) for key, value, at in axes]
        metrics.append(Metric("learning_rate", point.learning_rate, now_ms, point.step))
        mlflow.MlflowClient().log_batch(self.run_id, metrics)

    def record(self, made: Artifact, scores: Mapping[str, float], judged: Cost | None = None) -> None:
        """Log what a stage made: its scores, its cost, what it was made from, and its manifest.

        Args:
            made: the stage's artifact.
            scores: logged against steps, tokens and FLOPs.
            judged: what training cost whatever the scores are of, where that is not `made` itself.
        """
        manifest, now_ms = made.manifest, int(time.time() * 1000)
        cost = {f"cost_{key}": float(value) for key, value in manifest.cost.model_dump().items()}
        metrics = [Metric(key, value, now_ms, manifest.cost.steps) for key, value in cost.items()]
        for key, value, at in _against_all_axes(scores, judged or manifest.cost):
            metrics.append(Metric(key, value, now_ms, at))
        hashes = {f"data_{name}": value for name, value in manifest.data_hashes.items()}
        # What is nested has names from the data, such as labels, which MLflow's parameters may not be called by.
        details = {key: value for key, value in manifest.details.items() if not isinstance(value, Mapping)}
        client = mlflow.MlflowClient()
        client.log_batch(self.run_id, metrics, tags=[RunTag("kind", manifest.kind)])
        client.log_dict(self.run_id, manifest.model_dump(mode="json"), MANIFEST)
        _log_facts(self.run_id, {**_flat(manifest.recipe), **details, **hashes, "fingerprint": made.fingerprint})

    def keep(self, made: Artifact, name: str) -> None:
        """Keep an artifact with the run, under a name; `fetch_kept` brings it back."""
        mlflow.MlflowClient().log_artifacts(self.run_id, str(made.folder), name)


def _against_all_axes(scores: Mapping[str, float], cost: Cost) -> Iterator[tuple[str, float, int]]:
    for key, value in scores.items():
        yield key, value, cost.steps
        yield f"{key}_by_tokens", value, cost.tokens
        yield f"{key}_by_gflops", value, round(cost.flops / 1e9)


def open_run(recipe: Recipe, pipeline: str) -> str:
    """Begin the run of a whole pipeline, and return its id for the stages to stand under.

    Raises:
        TrackingError: the tracking server refuses or cannot be reached.
    """
    with _explained():
        client = mlflow.MlflowClient()
        tags = {"mlflow.runName": pipeline, "pipeline": pipeline, "project": recipe.name}
        run_id = str(client.create_run(_experiment(recipe.name), tags=tags).info.run_id)
        client.log_dict(run_id, recipe.model_dump(mode="json"), "recipe.json")
        _log_facts(run_id, _flat(recipe.model_dump()))
    return run_id


def close_run(run_id: str) -> None:
    """End the run of a whole pipeline that succeeded; a stage that fails has ended it already."""
    with _explained():
        mlflow.MlflowClient().set_terminated(run_id, "FINISHED")


@contextlib.contextmanager
def stage(parent_run: str, name: str) -> Iterator[StageRun]:
    """The run of one stage; if the stage fails, its run and its pipeline's are marked as failed.

    Raises:
        TrackingError: the tracking server refuses or cannot be reached.
    """
    client = mlflow.MlflowClient()
    with _explained():
        experiment = client.get_run(parent_run).info.experiment_id
        tags = {"mlflow.runName": name, MLFLOW_PARENT_RUN_ID: parent_run, "stage": name}
        run_id = str(client.create_run(experiment, tags=tags).info.run_id)
    try:
        with _explained():
            yield StageRun(run_id)
    except BaseException:
        with contextlib.suppress(MlflowException):  # why the stage failed matters more than that it cannot be marked
            client.set_terminated(run_id, "FAILED")
            client.set_terminated(parent_run, "FAILED")
        raise
    with _explained():
        client.set_terminated(run_id, "FINISHED")


def register(
    name: str, folder: Path, kind: Kind, run: StageRun, tags: Mapping[str, object], aliases: Sequence[str] = (CHAMPION,)
) -> str:
    """Register a verified artifact as a version of a model, and point aliases at it; returns the version.

    The same content is the same version, however often a step runs.

    Args:
        name: registered model, such as `<project>-embeddings-de`.
        folder: the artifact.
        kind: what it must be.
        run: the run that it comes from.
        tags: what to know of it beside fingerprint, language and alignment.
        aliases: moved to this version.

    Raises:
        ArtifactError: the artifact is damaged or of another kind.
        TrackingError: the registry refuses or cannot be reached.
    """
    made = Artifact.load(folder, kind)
    client = mlflow.MlflowClient()
    with _explained():
        version = _version_of(name, made.fingerprint) or _upload(name, made, run)
        facts = {"kind": kind, "language": made.manifest.language, "aligned_with": made.manifest.aligned_with, **tags}
        for key, value in facts.items():
            if value is not None:
                client.set_model_version_tag(name, version, key, str(value))
        for alias in aliases:
            client.set_registered_model_alias(name, alias, version)
    return version


def fetch(name: str, kind: Kind, out: Path, alias: str = CHAMPION) -> Artifact:
    """Copy a registered artifact to a folder, and verify it.

    Raises:
        TrackingError: no such model or alias, or the registry cannot be reached.
        ArtifactError: what came is damaged, or `out` cannot be written.
    """
    with _explained():
        return _download(str(_champion(name, alias).source), f"{alias!r} of {name!r}", kind, out)


def fetch_kept(run_id: str, name: str, kind: Kind, out: Path) -> Artifact:
    """Copy an artifact that a run keeps to a folder, and verify it.

    Raises:
        TrackingError: no such run or artifact, or the server cannot be reached.
        ArtifactError: what came is damaged, or `out` cannot be written.
    """
    with _explained():
        return _download(f"runs:/{run_id}/{name}", f"{name!r} of run {run_id}", kind, out)


def tag(name: str, key: str, value: str, alias: str = CHAMPION) -> None:
    """Set a tag on the version that an alias points at.

    Raises:
        TrackingError: no such model or alias, or the registry cannot be reached.
    """
    with _explained():
        mlflow.MlflowClient().set_model_version_tag(name, _champion(name, alias).version, key, value)


def tags_of(name: str, alias: str = CHAMPION) -> dict[str, str]:
    """Tags of the version that an alias points at.

    Raises:
        TrackingError: no such model or alias, or the registry cannot be reached.
    """
    with _explained():
        return dict(_champion(name, alias).tags)


def _champion(name: str, alias: str) -> "ModelVersion":
    try:
        return mlflow.MlflowClient().get_model_version_by_alias(name, alias)
    except MlflowException as error:
        if error.error_code not in _ABSENT:
            raise
        raise NotRegisteredError(
            f"the registry at {mlflow.get_tracking_uri()} has no {alias!r} of {name!r}: {error.message} "
            "Run the pipeline that registers it first, or set MLFLOW_TRACKING_URI to the registry that has it."
        ) from error


def _download(uri: str, what: str, kind: Kind, out: Path) -> Artifact:
    with tempfile.TemporaryDirectory() as folder:
        source = mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=folder)
        try:
            found = Artifact.load(Path(source), kind)
        except ArtifactError as error:
            raise ArtifactError(f"{what} at {mlflow.get_tracking_uri()} came as {error}") from error
        found.copy_to(out)
    return Artifact.load(out, kind)


def _version_of(name: str, fingerprint: str) -> str | None:
    found = mlflow.MlflowClient().search_model_versions(f"name='{name}' and tags.fingerprint='{fingerprint}'")
    return str(found[0].version) if found else None


def _upload(name: str, made: Artifact, run: StageRun) -> str:
    client = mlflow.MlflowClient()
    experiment = client.get_run(run.run_id).info.experiment_id
    model = client.create_logged_model(
        experiment, name=name, source_run_id=run.run_id, model_type=str(made.manifest.kind)
    )
    client.log_model_artifacts(model.model_id, str(made.folder))
    client.finalize_logged_model(model.model_id, "READY")
    uri = f"models:/{model.model_id}"
    return str(mlflow.register_model(uri, name, tags={"fingerprint": made.fingerprint}).version)


def _experiment(name: str) -> str:
    """The experiment's id; beside a SQLite file, artifacts go into a folder next to it and not to where one stands."""
    found = mlflow.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    uri = mlflow.get_tracking_uri()
    database = Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None
    return str(mlflow.create_experiment(name, (database.parent / "artifacts").as_uri() if database else None))


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except MlflowException as error:
        raise TrackingError(
            f"MLflow at {mlflow.get_tracking_uri()} did not do what was asked: {error.message} "
            "See that the server is up, and that MLFLOW_TRACKING_URI and its credentials are right."
        ) from error


def _log_facts(run_id: str, facts: Mapping[str, object]) -> None:
    params = [Param(key, str(value)) for key, value in facts.items()]
    for start in range(0, len(params), MAX_PARAMS_TAGS_PER_BATCH):
        mlflow.MlflowClient().log_batch(run_id, params=params[start : start + MAX_PARAMS_TAGS_PER_BATCH])


def _flat(nested: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by dots, as MLflow's parameters are flat and short; places in lists of sections count too."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Sequence) and any(isinstance(each, Mapping) for each in value):
            value = dict(enumerate(value))
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat

"""MLflow runs: one for each stage, below one for each pipeline, with learning curves, scores and artifacts."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.store.tracking import SEARCH_MAX_RESULTS_DEFAULT
from mlflow.utils.mlflow_tags import (
    MLFLOW_PARENT_RUN_ID,
    MLFLOW_RUN_NAME,
    MLFLOW_RUN_NOTE,
    MLFLOW_SOURCE_NAME,
    MLFLOW_SOURCE_TYPE,
)
from mlflow.utils.validation import MAX_METRICS_PER_BATCH, MAX_PARAMS_TAGS_PER_BATCH

from lingraft._version import __version__
from lingraft.artifacts.addresses import sqlite_file
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.errors import TrackingError
from lingraft.reports.run.records import TrackedRun
from lingraft.signals import Interruption, interruptible
from lingraft.tracking.client import AT_ONCE_S, UnreachableError, at_once, connect
from lingraft.tracking.tags import cost_tags, description_of, truncate

if TYPE_CHECKING:
    from lingraft.training.schedule import TrainingMetrics

RECIPE_FILE = "recipe.json"
"""Name of the recipe among the artifacts of a pipeline's run."""
KFP_RUN = "kfp_run"
"""Tag of a pipeline's run: id of the run in Kubeflow Pipelines."""
_FLUSH_S = 120.0
"""Seconds to wait at the end of a stage for the rest of its learning curve."""
_PAUSE_S = 1.0
"""Seconds between two requests with points of a curve."""
_METRICS_PER_POINT = 6
"""Largest number of metrics in a point."""


class _CurveSender:
    """Sends points of a learning curve from a thread, in order and until they arrive, so that training never waits.

    MLflow's asynchronous logging would drop what it could not send, and hold up the end of the process. Of points with
    equal metrics, time and step MLflow keeps one, so a batch may arrive twice.
    """

    def __init__(self, client: MlflowClient, run_id: str) -> None:
        self.error: TrackingError | None = None
        self._client = client
        self._run_id = run_id
        self._points: list[tuple[int, TrainingMetrics]] = []  # with times in milliseconds since 1970
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._send_all, name="lingraft-tracking", daemon=True)

    def add(self, point: "TrainingMetrics") -> None:
        self._points.append((_now_ms(), point))
        if not self._thread.ident:
            self._thread.start()

    def close(self, within_s: float) -> list[tuple[int, "TrainingMetrics"]]:
        """Send the rest within a limited time, and return what is left."""
        self._ending.set()
        if self._thread.ident:
            self._thread.join(within_s)
        return [*self._points]

    def _send_all(self) -> None:
        while self._points or not self._ending.is_set():
            batch = self._points[: MAX_METRICS_PER_BATCH // _METRICS_PER_POINT]
            metrics = [Metric(key, value, at, one.step) for at, one in batch for key, value in _metrics_of(one)]
            try:
                if metrics:
                    self._client.log_batch(self._run_id, metrics, synchronous=True)
                del self._points[: len(batch)]
            except TrackingError as error:
                if not self.error:
                    say(f"{error} Training goes on; {len(self._points)} points of its curve wait to be sent.")
                self.error = error
                if self._ending.is_set():
                    return
            self._ending.wait(_PAUSE_S)


class StageRun:
    """Run of a stage: pass `watch` to the stage, then `record` its result."""

    def __init__(self, run_id: str, parent: str, name: str, project: str, client: MlflowClient) -> None:
        self.run_id = run_id
        self.project = project
        """Name of the recipe that the pipeline runs."""
        self.client = client
        self._title = f"Run {run_id} of stage {name!r}"
        self._parent = parent
        self._made: Path | None = None
        self._curve = _CurveSender(client, run_id)

    def watch(self, point: "TrainingMetrics") -> None:
        """Queue a point of the learning curve; the end of the stage waits for it, and says what did not arrive."""
        self._curve.add(point)

    def record(self, made: Artifact, scores: Mapping[str, float]) -> None:
        """Log scores, cost, fingerprints of inputs, manifest and description of what a stage made.

        The artifact holds all of that too, so a server that stays down does not fail a stage that has succeeded: a
        message says what the run lacks.
        """
        self._made = made.folder
        manifest = made.manifest
        # Nested values have keys from the data, such as labels, which MLflow does not allow as names of parameters.
        facts = {**manifest.details, **manifest.record}.items()
        details = {key: value for key, value in facts if not isinstance(value, Mapping)}
        hashes = {f"data_{name}": value for name, value in manifest.data_hashes.items()}
        params = {**_flatten(manifest.recipe), **details, **hashes, "fingerprint": made.fingerprint}
        note = {MLFLOW_RUN_NOTE: description_of(made, scores)}
        tags = {"kind": manifest.kind, "language": manifest.language, **cost_tags(manifest), **note}
        try:
            with mention_artifact(made):
                _log_scores(self.client, self.run_id, scores, tags)
                self.client.log_dict(self.run_id, manifest.model_dump(mode="json"), MANIFEST)
                _log_params(self.client, self.run_id, params)
        except UnreachableError as error:
            say(f"{self._title} lacks manifest, cost and {len(scores)} scores. {error}")

    def log_artifact(self, made: Artifact, name: str) -> None:
        """Store an artifact with the run under a name; `fetch_run_artifact` downloads it."""
        log_artifact(self.client, self.run_id, made, name)

    def finish(self) -> None:
        """Send the rest of the curve, and mark the run as finished."""
        self._flush(_FLUSH_S)
        try:
            self.client.set_terminated(self.run_id, "FINISHED")
        except UnreachableError as error:
            say(f"{self._title} is not marked as finished, though the stage is. {error}")

    def fail(self, error: BaseException) -> None:
        """Send the rest of the curve for a few seconds, and mark the run and its pipeline's as failed or killed."""
        self._flush(AT_ONCE_S)
        _mark_failed((self.run_id, self._parent), error)

    def _flush(self, within_s: float) -> None:
        if left := self._curve.close(within_s):
            remedy = (
                f"{self._made} has them all." if self._made else "A rerun that resumes the training sends them again."
            )
            reason = self._curve.error or f"MLflow did not answer within {within_s:.0f} s."
            missing = f"{len(left)} points of its learning curve, from step {left[0][1].step} on"
            say(f"{self._title} lacks {missing}. {remedy} {reason}")


def log_artifact(client: MlflowClient, run_id: str, made: Artifact, name: str) -> None:
    """Store an artifact with a run under a name; `fetch_run_artifact` downloads it."""
    with mention_artifact(made):
        client.log_artifacts(run_id, str(made.folder), name)


@contextlib.contextmanager
def mention_artifact(made: Artifact) -> Iterator[None]:
    """Add to a tracking error that the artifact itself is whole."""
    try:
        yield
    except TrackingError as error:
        raise type(error)(f"{error} The {made.manifest.kind} in {made.folder} is whole.") from error


def open_run(recipe: Recipe, pipeline: str, kfp_run: str = "") -> str:
    """Create the run of a pipeline, and return its id, which is the parent of the stages' runs.

    Args:
        kfp_run: id of the run in Kubeflow Pipelines; empty outside of it.
    """
    note = (
        f"The pipeline `{pipeline}` of `{recipe.name}`, from `{recipe.source.language}` to "
        f"{', '.join(f'`{target}`' for target in recipe.targets)}. Its stages are runs of their own below this one. "
        "Parameters are the recipe, and `recipe.json` among the artifacts is all of it."
    )
    more = {"recipe": recipe.digest()} | ({KFP_RUN: kfp_run} if kfp_run else {})
    return _open_parent_run(recipe.name, pipeline, recipe.model_dump(mode="json"), note, more)


@contextlib.contextmanager
def project_run(project: str, work: str, settings: Mapping[str, Any], note: str) -> Iterator[str]:
    """Create a parent run, finish it at the end, and mark it as failed or killed if the body raises.

    Args:
        work: name of the run, such as `add-language`.
        settings: settings as JSON, stored as `recipe.json` and logged as parameters.
    """
    run_id = _open_parent_run(project, work, settings, note, {})
    try:
        yield run_id
    except BaseException as error:
        _mark_failed((run_id,), error)
        raise
    close_run(run_id)


def _open_parent_run(project: str, work: str, settings: Mapping[str, Any], note: str, more: Mapping[str, str]) -> str:
    source = {MLFLOW_SOURCE_NAME: f"lingraft {__version__}, {work}", MLFLOW_SOURCE_TYPE: "LOCAL"}
    tags = {MLFLOW_RUN_NAME: work, MLFLOW_RUN_NOTE: note, "pipeline": work, "project": project, **source, **more}
    client = connect(creates=True)
    run_id = str(client.create_run(_get_or_create_experiment(client, project), tags=tags).info.run_id)
    client.log_dict(run_id, dict(settings), RECIPE_FILE)
    _log_params(client, run_id, _flatten(settings))
    return run_id


def _mark_failed(run_ids: Sequence[str], error: BaseException) -> None:
    """Mark runs as failed or killed if MLflow answers at once; it must not hide the error itself."""
    status = "KILLED" if isinstance(error, Interruption | KeyboardInterrupt) else "FAILED"
    with at_once(), contextlib.suppress(TrackingError):
        for run_id in run_ids:
            connect().set_terminated(run_id, status)


def describe(client: MlflowClient, run_id: str, name: str, note: str, scores: Mapping[str, float]) -> None:
    """Set name, description in Markdown and metrics of a pipeline's run, which its page shows at the top."""
    _log_scores(client, run_id, scores, {MLFLOW_RUN_NAME: name, MLFLOW_RUN_NOTE: truncate(note)})


def tracked_run(client: MlflowClient, run_id: str) -> TrackedRun:
    """Return the location of a pipeline's run, without credentials."""
    address = urlsplit(mlflow.get_tracking_uri())
    public = address._replace(netloc=address.netloc.rpartition("@")[2])
    uri = urlunsplit(public) if address.netloc else mlflow.get_tracking_uri()
    return TrackedRun(uri=uri, experiment=str(client.get_run(run_id).info.experiment_id), run=run_id)


def close_run(run_id: str, failed: bool = False) -> None:
    """End the run of a pipeline, also one that a failed stage has marked while other stages went on."""
    connect().set_terminated(run_id, "FAILED" if failed else "FINISHED")


def close_abandoned(project: str, kfp_run: str) -> list[str]:
    """Mark the runs that a run of Kubeflow Pipelines has left open as killed, and return their ids."""
    client = connect()
    experiment = client.get_experiment_by_name(project)
    if experiment is None:  # the pipeline ended before it had a run
        return []
    where = experiment.experiment_id
    parents = _runs(client, where, f"tags.`{KFP_RUN}` = '{kfp_run}'")
    stages = (_runs(client, where, f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{each.info.run_id}'") for each in parents)
    abandoned = [str(run.info.run_id) for run in chain(parents, *stages) if run.info.status == "RUNNING"]
    for run_id in abandoned:
        client.set_terminated(run_id, "KILLED")
    return abandoned


def _runs(client: MlflowClient, experiment: str, where: str) -> list[Run]:
    return list(client.search_runs([experiment], where, max_results=SEARCH_MAX_RESULTS_DEFAULT))


@contextlib.contextmanager
def stage(parent_run: str, name: str) -> Iterator[StageRun]:
    """Create the run of one stage; if the stage fails or is stopped, mark its run and its pipeline's accordingly.

    A killed process cannot do that, so the next attempt at the same stage marks the old run as killed.
    """
    with interruptible():
        client = connect()
        parent = client.get_run(parent_run)
        experiment = parent.info.experiment_id
        same = f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{parent_run}' and tags.stage = '{name}'"
        for lost in _runs(client, experiment, f"{same} and attributes.status = 'RUNNING'"):
            client.set_terminated(lost.info.run_id, "KILLED")
        tags = {MLFLOW_RUN_NAME: name, MLFLOW_PARENT_RUN_ID: parent_run, "stage": name}
        run_id = str(client.create_run(experiment, tags=tags).info.run_id)
        run = StageRun(run_id, parent_run, name, parent.data.tags["project"], client)
        try:
            yield run
            run.finish()
        except BaseException as error:
            run.fail(error)
            raise


def _now_ms() -> int:
    return int(time.time() * 1000)


def _log_scores(
    client: MlflowClient, run_id: str, scores: Mapping[str, float], tags: Mapping[str, object | None]
) -> None:
    metrics = [Metric(key, value, _now_ms(), 0) for key, value in scores.items()]
    run_tags = [RunTag(key, str(value)) for key, value in tags.items() if value is not None]
    client.log_batch(run_id, metrics, tags=run_tags)


def _metrics_of(point: "TrainingMetrics") -> list[tuple[str, float]]:
    """Return the metrics of a point, without those that do not apply to this training."""
    measured: dict[str, float | None] = {
        **{name: getattr(point, name) for name in ("loss", "learning_rate")},
        "left_out_steps": point.left_out_steps or None,
        **{f"cost/{name}": getattr(point, name) for name in ("tokens", "flops", "elapsed_s")},
    }
    return [(key, value) for key, value in measured.items() if value is not None]


def _get_or_create_experiment(client: MlflowClient, name: str) -> str:
    """Return an experiment's id, created if need be; beside a SQLite file, artifacts go into a folder next to it."""
    found = client.get_experiment_by_name(name)
    if found is None:
        file = sqlite_file(mlflow.get_tracking_uri())
        try:
            return str(
                client.create_experiment(name, (Path(file).absolute().parent / "artifacts").as_uri() if file else None)
            )
        except TrackingError:
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage == "deleted":
        raise TrackingError(
            f"the experiment {name!r} at {mlflow.get_tracking_uri()} was deleted. Restore it (`mlflow experiments "
            f"restore --experiment-id {found.experiment_id}`), delete it for good (`mlflow gc`), or rename the recipe."
        )
    return str(found.experiment_id)


def _log_params(client: MlflowClient, run_id: str, facts: Mapping[str, object]) -> None:
    params = [Param(key, str(value)) for key, value in facts.items()]
    for start in range(0, len(params), MAX_PARAMS_TAGS_PER_BATCH):
        client.log_batch(run_id, params=params[start : start + MAX_PARAMS_TAGS_PER_BATCH], synchronous=True)


def _flatten(nested: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted keys, with indices for lists of sections: MLflow's parameters are flat."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Sequence) and any(isinstance(each, Mapping) for each in value):
            value = dict(enumerate(value))
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat

"""MLflow runs: one for each stage, below one for each pipeline, with learning curves, scores and artifacts."""

import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
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
from lingraft.artifacts.manifest import MANIFEST, Kind
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.errors import TrackingError
from lingraft.reports.run.records import TrackedRun
from lingraft.signals import Interruption, interruptible
from lingraft.tracking.client import (
    FINAL_WAIT_S,
    RetryingClient,
    UnreachableError,
    client_without_retries,
    mlflow_errors,
    retrying_client,
)
from lingraft.tracking.datasets import inputs_of
from lingraft.tracking.metrics_queue import MetricsQueue
from lingraft.tracking.tags import cost_tags, run_description, truncate

if TYPE_CHECKING:
    from lingraft.training.schedule import TrainingMetrics

RECIPE_FILE = "recipe.json"
"""Name of the recipe among the artifacts of a pipeline's run."""
KFP_RUN = "kfp_run"
"""Tag of a pipeline's run: id of the run in Kubeflow Pipelines."""
_REQUEST = "lingraft.request"
"""Tag that identifies a run by the request that created it, if the answer to that request was lost."""
_METRICS_PER_POINT = 6
"""Largest number of metrics in a point."""

TimedMetrics = tuple[int, "TrainingMetrics"]
"""Time of a point in milliseconds since 1970, and its metrics."""


class StageRun:
    """Run of a stage: pass `watch` to the stage, then `record` its result."""

    def __init__(self, run_id: str, parent: str, name: str, project: str, client: RetryingClient) -> None:
        self.run_id = run_id
        self.project = project
        """Name of the recipe that the pipeline runs."""
        self.client = client
        self._title = f"Run {run_id} of stage {name!r}"
        self._parent = parent
        self._made: Path | None = None
        self._queue = MetricsQueue(partial(_log_points, run_id), MAX_METRICS_PER_BATCH // _METRICS_PER_POINT)

    def watch(self, point: "TrainingMetrics") -> None:
        """Queue a point of the learning curve: losses at a step, and the cost until then.

        Training neither waits for the server nor fails with it. The end of the stage sends the rest for at most
        `LINGRAFT_TRACKING_WAIT_S` seconds, and a message says what did not arrive. The time of a point is fixed here,
        so that MLflow counts a point once even if it is sent twice.
        """
        self._queue.add((_now_ms(), point))

    def record(self, made: Artifact, scores: Mapping[str, float]) -> None:
        """Log the result of a stage: scores, cost, input datasets, manifest, and a description of the run.

        The artifact holds all of that too, so a server that stays down does not fail a stage that has succeeded: a
        message says what the run lacks.

        Args:
            scores: metrics that are logged once, so that MLflow's pages compare them between runs as bars.
        """
        self._made = made.folder
        try:
            with mention_artifact(made):
                self._record(made, scores)
        except UnreachableError as error:
            say(f"{self._title} lacks manifest, cost and {len(scores)} scores. {error}")

    def log_artifact(self, made: Artifact, name: str) -> None:
        """Store an artifact with the run under a name; `fetch_run_artifact` downloads it."""
        log_artifact(self.client, self.run_id, made, name)

    def _record(self, made: Artifact, scores: Mapping[str, float]) -> None:
        manifest = made.manifest
        note = run_description(made, {key: f"{value:.4g}" for key, value in scores.items()})
        tags = {
            "kind": manifest.kind,
            "language": manifest.language,
            **cost_tags(manifest),
            MLFLOW_RUN_NOTE: note,
        }
        # Nested values have keys from the data, such as labels, which MLflow does not allow as names of parameters.
        details = {
            key: value
            for key, value in {**manifest.details, **manifest.record}.items()
            if not isinstance(value, Mapping)
        }
        hashes = {f"data_{name}": value for name, value in manifest.data_hashes.items()}
        params = {**_flatten(manifest.recipe), **details, **hashes, "fingerprint": made.fingerprint}
        _log_scores(self.client, self.run_id, scores, tags)
        if inputs := inputs_of(manifest):
            for run_id in [self.run_id, *([self._parent] if manifest.kind is Kind.TEXT else [])]:
                self.client.api.log_inputs(run_id, inputs)
        self.client.api.log_dict(self.run_id, manifest.model_dump(mode="json"), MANIFEST)
        self.client.call(lambda: _log_params(self.run_id, params))

    def finish(self) -> None:
        """Send the rest of the curve, and mark the run as finished."""
        self._flush(self.client.wait_left_s)
        try:
            if self.client.repeated:
                self.client.call(partial(_delete_duplicates, self.run_id))
            self.client.api.set_terminated(self.run_id, "FINISHED")
        except UnreachableError as error:
            say(f"{self._title} is not marked as finished, though the stage is. {error}")

    def fail(self, error: BaseException) -> None:
        """Send the rest of the curve for a few seconds, and mark the run and its pipeline's as failed or killed."""
        self._flush(FINAL_WAIT_S)
        _mark_failed((self.run_id, self._parent), error)

    def _flush(self, within_s: float) -> None:
        began_s = time.monotonic()
        pending = self._queue.close(within_s)
        if not pending.count:
            return
        self.client.wait_left_s = max(0.0, self.client.wait_left_s - (time.monotonic() - began_s))
        remedy = f"{self._made} has them all." if self._made else "A rerun that resumes the training sends them again."
        reason = pending.error or f"MLflow did not answer within {within_s:.0f} s."
        first = f", from step {pending.points[0][1].step} on" if pending.points else ""
        say(f"{self._title} lacks {pending.count} points of its learning curve{first}. {remedy} {reason}")


def log_artifact(client: RetryingClient, run_id: str, made: Artifact, name: str) -> None:
    """Store an artifact with a run under a name; `fetch_run_artifact` downloads it."""
    with mention_artifact(made):
        client.transfer(partial(MlflowClient().log_artifacts, run_id, str(made.folder), name))


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
        recipe: recipe of the pipeline.
        pipeline: name of the pipeline.
        kfp_run: id of the run in Kubeflow Pipelines; empty outside of it.
    """
    note = (
        f"The pipeline `{pipeline}` of `{recipe.name}`, from `{recipe.source.language}` to "
        f"{', '.join(f'`{target}`' for target in recipe.targets)}. Its stages are runs of their own below this one. "
        "Parameters are the recipe, and `recipe.json` among the artifacts is all of it."
    )
    return _open_parent_run(
        project=recipe.name,
        work=pipeline,
        recipe=recipe.model_dump(mode="json"),
        parameters=recipe.model_dump(),
        note=note,
        more_tags={"recipe": recipe.digest()} | ({KFP_RUN: kfp_run} if kfp_run else {}),
    )


@contextlib.contextmanager
def project_run(project: str, work: str, settings: Mapping[str, Any], note: str) -> Iterator[str]:
    """Create a parent run, finish it at the end, and mark it as failed or killed if the body raises.

    Args:
        project: name of the project in the registry.
        work: name of the run, such as `add-language`.
        settings: settings as JSON, stored as `recipe.json` and logged as parameters.
    """
    run_id = _open_parent_run(project=project, work=work, recipe=settings, parameters=settings, note=note, more_tags={})
    try:
        yield run_id
    except BaseException as error:
        _mark_failed((run_id,), error)
        raise
    close_run(run_id)


def _open_parent_run(
    project: str,
    work: str,
    recipe: Mapping[str, Any],
    parameters: Mapping[str, Any],
    note: str,
    more_tags: Mapping[str, str],
) -> str:
    tags = {
        MLFLOW_RUN_NAME: work,
        MLFLOW_RUN_NOTE: note,
        MLFLOW_SOURCE_NAME: f"lingraft {__version__}, {work}",
        MLFLOW_SOURCE_TYPE: "LOCAL",
        "pipeline": work,
        "project": project,
        **more_tags,
    }
    with retrying_client(creates=True) as client:
        experiment = client.call(partial(_get_or_create_experiment, project))
        run_id = _create_run(client, experiment, tags)
        client.api.log_dict(run_id, dict(recipe), RECIPE_FILE)
        client.call(lambda: _log_params(run_id, _flatten(parameters)))
        if client.repeated:
            client.call(partial(_delete_duplicates, run_id))
    return run_id


def _mark_failed(run_ids: Sequence[str], error: BaseException) -> None:
    """Mark runs as failed or killed if MLflow answers at once; it must not hide the error itself."""
    status = "KILLED" if isinstance(error, Interruption | KeyboardInterrupt) else "FAILED"
    with client_without_retries() as client, contextlib.suppress(TrackingError):
        for run_id in run_ids:
            client.api.set_terminated(run_id, status)


def describe(client: RetryingClient, run_id: str, name: str, note: str, scores: Mapping[str, float]) -> None:
    """Set name, description and metrics of a pipeline's run, which its page shows at the top.

    Args:
        note: description in Markdown, of which MLflow's pages show the first lines.
        scores: metrics by which MLflow's charts compare it with the pipeline's other runs.
    """
    _log_scores(client, run_id, scores, {MLFLOW_RUN_NAME: name, MLFLOW_RUN_NOTE: truncate(note)})


def tracked_run(client: RetryingClient, run_id: str) -> TrackedRun:
    """Return the location of a pipeline's run, without credentials."""
    address = urlsplit(mlflow.get_tracking_uri())
    public = address._replace(netloc=address.netloc.rpartition("@")[2])
    uri = urlunsplit(public) if address.netloc else mlflow.get_tracking_uri()
    return TrackedRun(uri=uri, experiment=str(client.api.get_run(run_id).info.experiment_id), run=run_id)


def _stage_runs(client: RetryingClient, experiment: str, parent: str) -> list[Run]:
    """Return the runs of a pipeline's stages in order of their start."""
    return list(
        client.api.search_runs(
            [experiment],
            f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{parent}'",
            max_results=SEARCH_MAX_RESULTS_DEFAULT,
            order_by=["attributes.start_time ASC"],
        )
    )


def close_run(run_id: str, failed: bool = False) -> None:
    """End the run of a pipeline, also one that a failed stage has marked while other stages went on."""
    with retrying_client() as client:
        client.api.set_terminated(run_id, "FAILED" if failed else "FINISHED")


def close_abandoned(project: str, kfp_run: str) -> list[str]:
    """Mark the runs of a pipeline and of its stages that are still open as killed, and return the ids of these runs.

    Args:
        project: name of the recipe.
        kfp_run: id of the pipeline's run in Kubeflow Pipelines.
    """
    with retrying_client() as client:
        experiment = client.api.get_experiment_by_name(project)
        if experiment is None:  # the pipeline ended before it had a run
            return []
        where = experiment.experiment_id
        parents = client.api.search_runs([where], f"tags.`{KFP_RUN}` = '{kfp_run}'")
        runs = [*parents, *(stage for each in parents for stage in _stage_runs(client, where, each.info.run_id))]
        abandoned = [str(run.info.run_id) for run in runs if run.info.status == "RUNNING"]
        for run_id in abandoned:
            client.api.set_terminated(run_id, "KILLED")
    return abandoned


def tag_run(client: RetryingClient, run_id: str, key: str, value: str) -> None:
    """Set a tag of a run."""
    client.api.set_tag(run_id, key, value)


def tag_at_once(run_id: str, key: str, value: str | None) -> None:
    """Set a tag of a run, or delete it (None), where nobody may wait for MLflow.

    Raises:
        TrackingError: MLflow does not do so at once.
    """
    with client_without_retries() as client:
        if value is None:
            client.api.delete_tag(run_id, key)
        else:
            client.api.set_tag(run_id, key, truncate(value))


def tags_of_run(run_id: str) -> dict[str, str]:
    """Return all tags of a run."""
    with retrying_client() as client:
        return dict(client.api.get_run(run_id).data.tags)


@contextlib.contextmanager
def stage(parent_run: str, name: str) -> Iterator[StageRun]:
    """Create the run of one stage; if the stage fails or is stopped, mark its run and its pipeline's accordingly.

    A killed process cannot do that, so the next attempt at the same stage marks the old run as killed.

    Raises:
        Interruption: the process was asked to stop where the stage itself does not handle that.
    """
    with interruptible(), retrying_client() as client:
        parent = client.api.get_run(parent_run)
        experiment = parent.info.experiment_id
        client.call(partial(_kill_abandoned, experiment, parent_run, name))
        tags = {MLFLOW_RUN_NAME: name, MLFLOW_PARENT_RUN_ID: parent_run, "stage": name}
        run = StageRun(_create_run(client, experiment, tags), parent_run, name, parent.data.tags["project"], client)
        try:
            yield run
            run.finish()
        except BaseException as error:
            run.fail(error)
            raise


def _now_ms() -> int:
    return int(time.time() * 1000)


def _log_scores(
    client: RetryingClient, run_id: str, scores: Mapping[str, float], tags: Mapping[str, object | None]
) -> None:
    now_ms = _now_ms()
    metrics = [Metric(key, value, now_ms, 0) for key, value in scores.items()]
    run_tags = [RunTag(key, str(value)) for key, value in tags.items() if value is not None]
    client.api.log_batch(run_id, metrics, tags=run_tags)


def _log_points(run_id: str, points: Sequence[TimedMetrics]) -> None:
    """Log points in one request; of metrics with equal name, time, step and value MLflow keeps one."""
    metrics = [
        Metric(key, value, now_ms, point.step) for now_ms, point in points for key, value in _metrics_of(point).items()
    ]
    with mlflow_errors():
        MlflowClient().log_batch(run_id, metrics, synchronous=True)


def _metrics_of(point: "TrainingMetrics") -> dict[str, float]:
    """Return the metrics of a point, without those that do not apply to this training."""
    measured: dict[str, float | None] = {
        "loss": point.loss,
        "learning_rate": point.learning_rate,
        "left_out_steps": point.left_out_steps or None,
        **{f"cost/{name}": getattr(point, name) for name in ("tokens", "flops", "elapsed_s")},
    }
    return {key: value for key, value in measured.items() if value is not None}


def _create_run(client: RetryingClient, experiment: str, tags: Mapping[str, str]) -> str:
    """Create a run, and return its id; a repeated request finds the run that the first one created."""
    request = uuid.uuid4().hex

    def get_or_create() -> str:
        if found := _runs_of_request(experiment, request):
            return found[0]
        return str(MlflowClient().create_run(experiment, tags={**tags, _REQUEST: request}).info.run_id)

    return client.call(get_or_create)


def _runs_of_request(experiment: str, request: str) -> list[str]:
    found = MlflowClient().search_runs([experiment], f"tags.`{_REQUEST}` = '{request}'")
    return [str(run.info.run_id) for run in found]


def _kill_abandoned(experiment: str, parent_run: str, name: str) -> None:
    mlflow_client = MlflowClient()
    same = f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{parent_run}' and tags.stage = '{name}'"
    for run in mlflow_client.search_runs([experiment], f"{same} and attributes.status = 'RUNNING'"):
        mlflow_client.set_terminated(run.info.run_id, "KILLED")


def _delete_duplicates(run_id: str) -> None:
    """Delete further runs of a request that was repeated although its first attempt had succeeded."""
    mlflow_client = MlflowClient()
    run = mlflow_client.get_run(run_id)
    for duplicate in set(_runs_of_request(run.info.experiment_id, run.data.tags[_REQUEST])) - {run_id}:
        mlflow_client.delete_run(duplicate)


def _get_or_create_experiment(name: str) -> str:
    """Return an experiment's id, created if need be; beside a SQLite file, artifacts go into a folder next to it."""
    found = mlflow.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    file = sqlite_file(mlflow.get_tracking_uri())
    beside = (Path(file).absolute().parent / "artifacts").as_uri() if file else None
    return str(mlflow.create_experiment(name, beside))


def _log_params(run_id: str, facts: Mapping[str, object]) -> None:
    params = [Param(key, str(value)) for key, value in facts.items()]
    for start in range(0, len(params), MAX_PARAMS_TAGS_PER_BATCH):
        batch = params[start : start + MAX_PARAMS_TAGS_PER_BATCH]
        MlflowClient().log_batch(run_id, params=batch, synchronous=True)


def _flatten(nested: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted keys, with indices for lists of sections: MLflow's parameters are flat."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Sequence) and any(isinstance(each, Mapping) for each in value):
            value = dict(enumerate(value))
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat

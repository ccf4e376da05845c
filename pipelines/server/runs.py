"""Versions of pipelines on the server, and runs of them, started once or on a schedule."""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kfp_server_api as kfp
import yaml

from pipelines.server.connection import Connection, server_errors

_HASH_CHARACTERS = 12
_TAKEN = 409
"""HTTP status of a create request whose name is taken."""


@dataclass(frozen=True)
class RunRequest:
    """Request of a run."""

    version: kfp.V2beta1PipelineVersion
    experiment: str
    """Name of the experiment, which is created if need be."""
    name: str
    """Name of the run."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the pipeline that differ from their defaults."""
    service_account: str = ""
    """Service account of the steps; the server's default if empty."""


def upload(connection: Connection, client: kfp.ApiClient, package: Path) -> kfp.V2beta1PipelineVersion:
    """Upload a compiled pipeline unless the server has this version, and return the version.

    Args:
        connection: connection to the server.
        client: client of its API.
        package: compiled YAML, with the pipeline's name; the hash of its content is the version's name.

    Raises:
        ServerError: the server refused, failed or does not answer.
    """
    documents = [*yaml.safe_load_all(package.read_bytes())]
    name = str(documents[0]["pipelineInfo"]["name"])
    # The order of keys, and the comments of KFP's compiler, differ from run to run.
    version = hashlib.sha256(json.dumps(documents, sort_keys=True).encode()).hexdigest()[:_HASH_CHARACTERS]
    pipelines = kfp.PipelineServiceApi(client)
    uploads = kfp.PipelineUploadServiceApi(client)
    wanted = kfp.V2beta1Pipeline(name=name, display_name=name, namespace=connection.namespace or None)
    with server_errors(connection, f"upload pipeline {name}"):
        pipeline_id = _get_or_create(
            lambda: _list_by_name(
                pipelines.pipeline_service_list_pipelines, "pipelines", "name", name, namespace=connection.namespace
            ),
            lambda: pipelines.pipeline_service_create_pipeline(wanted),
        ).pipeline_id
        return _get_or_create(
            lambda: _list_by_name(
                functools.partial(pipelines.pipeline_service_list_pipeline_versions, pipeline_id=pipeline_id),
                "pipeline_versions",
                "name",
                version,
            ),
            lambda: uploads.upload_pipeline_version(str(package), name=version, pipelineid=pipeline_id),
        )


def start_run(connection: Connection, client: kfp.ApiClient, request: RunRequest) -> str:
    """Start a run, and return its id.

    Raises:
        ServerError: the server refused, failed or does not answer.
    """
    experiment_id = _experiment(connection, client, request.experiment)
    with server_errors(connection, f"start {request.name}"):
        made = kfp.RunServiceApi(client).run_service_create_run(kfp.V2beta1Run(**_common(request, experiment_id)))
    return str(made.run_id)


def schedule(connection: Connection, client: kfp.ApiClient, request: RunRequest, cron: str) -> str:
    """Create a schedule, with one run at a time and no catch-up of missed ones, and return the recurring run's id.

    Older schedules of the same name are deleted once the new one exists.

    Args:
        connection: connection to the server.
        client: client of its API.
        request: run to repeat.
        cron: six fields, seconds first: "0 0 3 * * *" is every night at three.

    Raises:
        ServerError: the server refused, failed or does not answer.
    """
    schedules = kfp.RecurringRunServiceApi(client)
    experiment_id = _experiment(connection, client, request.experiment)
    wanted = kfp.V2beta1RecurringRun(
        **_common(request, experiment_id),
        trigger=kfp.V2beta1Trigger(cron_schedule=kfp.V2beta1CronSchedule(cron=cron)),
        mode=kfp.RecurringRunMode.ENABLE,
        max_concurrency="1",
        no_catchup=True,
    )
    of_experiment = functools.partial(schedules.recurring_run_service_list_recurring_runs, experiment_id=experiment_id)
    with server_errors(connection, f"schedule {request.name}"):
        before = _list_by_name(
            of_experiment, "recurring_runs", "display_name", request.name, namespace=connection.namespace
        )
        made = schedules.recurring_run_service_create_recurring_run(wanted)
        for each in before:
            schedules.recurring_run_service_delete_recurring_run(each.recurring_run_id)
    return str(made.recurring_run_id)


def _common(request: RunRequest, experiment_id: str) -> dict[str, Any]:
    """Return the fields that a run and a recurring run have in common."""
    version = kfp.V2beta1PipelineVersionReference(
        pipeline_id=request.version.pipeline_id, pipeline_version_id=request.version.pipeline_version_id
    )
    return {
        "experiment_id": experiment_id,
        "display_name": request.name,
        "pipeline_version_reference": version,
        "runtime_config": kfp.V2beta1RuntimeConfig(parameters=dict(request.parameters)),
        "service_account": request.service_account or None,
    }


def _experiment(connection: Connection, client: kfp.ApiClient, name: str) -> str:
    experiments = kfp.ExperimentServiceApi(client)
    wanted = kfp.V2beta1Experiment(display_name=name, namespace=connection.namespace or None)
    listing = experiments.experiment_service_list_experiments
    with server_errors(connection, f"experiment {name}"):
        made = _get_or_create(
            lambda: _list_by_name(listing, "experiments", "display_name", name, namespace=connection.namespace),
            lambda: experiments.experiment_service_create_experiment(wanted),
        )
    return str(made.experiment_id)


def _list_by_name(listing: Callable[..., Any], noun: str, key: str, name: str, namespace: str = "") -> list[Any]:
    """Return the objects whose `key` is a name, oldest first, at most 20, by the server's own filter."""
    wanted = kfp.V2beta1Predicate(kfp.V2beta1PredicateOperation.EQUALS, key=key, string_value=name)
    of_name = json.dumps(kfp.ApiClient().sanitize_for_serialization(kfp.V2beta1Filter(predicates=[wanted])))
    where = {"namespace": namespace} if namespace else {}
    return getattr(listing(**where, filter=of_name), noun) or []


def _get_or_create(find: Callable[[], list[Any]], make: Callable[[], Any]) -> Any:
    """Return the oldest existing object, else create it; if another client creates it meanwhile, return that one."""
    for existing in find():
        return existing
    try:
        return make()
    except kfp.ApiException as error:
        theirs = find() if error.status == _TAKEN else []
        if not theirs:
            raise
        return theirs[0]

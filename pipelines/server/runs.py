"""Runs on the server, started once or on a schedule."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import kfp_server_api as kfp

from pipelines.server.connection import Connection, server_errors
from pipelines.server.listing import find_by_name, get_or_create, list_by_name


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


def start_run(connection: Connection, client: kfp.ApiClient, request: RunRequest) -> str:
    """Start a run, and return its id.

    Raises:
        ServerError: the server refused, failed or does not answer.
    """
    experiment_id = _experiment(connection, client, request.experiment)
    with server_errors(connection, f"start {request.name}"):
        return str(
            kfp.RunServiceApi(client).run_service_create_run(kfp.V2beta1Run(**_common(request, experiment_id))).run_id
        )


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
    with server_errors(connection, f"schedule {request.name}"):
        before = list_by_name(
            schedules.recurring_run_service_list_recurring_runs,
            "recurring_runs",
            request.name,
            experiment_id=experiment_id,
            namespace=connection.namespace,
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
    find = functools.partial(
        find_by_name,
        experiments.experiment_service_list_experiments,
        "experiments",
        name,
        namespace=connection.namespace,
    )
    with server_errors(connection, f"experiment {name}"):
        made = get_or_create(find, lambda: experiments.experiment_service_create_experiment(wanted))
    return str(made.experiment_id)

"""Upload a compiled pipeline as a version of a pipeline on the server; the same content is the same version."""

import functools
import hashlib
import json
from pathlib import Path

import kfp_server_api as kfp
import yaml

from pipelines.server.connection import Connection, server_errors
from pipelines.server.listing import find_by_name, get_or_create

_HASH_CHARACTERS = 12


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
        of_name = functools.partial(
            find_by_name,
            pipelines.pipeline_service_list_pipelines,
            "pipelines",
            name,
            key="name",
            namespace=connection.namespace,
        )
        pipeline_id = get_or_create(of_name, lambda: pipelines.pipeline_service_create_pipeline(wanted)).pipeline_id
        of_version = functools.partial(
            find_by_name,
            pipelines.pipeline_service_list_pipeline_versions,
            "pipeline_versions",
            version,
            key="name",
            pipeline_id=pipeline_id,
        )
        return get_or_create(
            of_version, lambda: uploads.upload_pipeline_version(str(package), name=version, pipelineid=pipeline_id)
        )

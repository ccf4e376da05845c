"""Kinds that a cluster has been taught."""

from collections.abc import Iterator

from kubernetes import client

from lingraft.doctor.findings import Finding, check_exists
from lingraft.steps.launch.workload import TRAIN_JOB

_KINDS = {
    "workflows.argoproj.io": "Install Kubeflow Pipelines, with this namespace as one of its profiles.",
    "inferenceservices.serving.kserve.io": "Install KServe 0.17 or later, to serve what is learned.",
}
_TOGETHER = {
    f"{TRAIN_JOB.plural}.{TRAIN_JOB.group}": "Install Kubeflow Trainer 2.3 or later: stages on nodes together."
}


def check_kinds(api: client.ApiClient, runtime: str | None) -> Iterator[Finding]:
    """Whether the kinds are there that runs are made of.

    Args:
        api: of the cluster.
        runtime: ClusterTrainingRuntime of stages on several nodes, if there are such.
    """
    read = client.ApiextensionsV1Api(api).read_custom_resource_definition
    for name, remedy in (_KINDS | (_TOGETHER if runtime else {})).items():
        yield check_exists(f"kind {name}", lambda name=name: read(name), remedy)  # type: ignore[misc]
    if runtime:
        where = TRAIN_JOB.group, TRAIN_JOB.version, "clustertrainingruntimes", runtime
        read_runtime = client.CustomObjectsApi(api).get_cluster_custom_object
        remedy = "Apply manifests/overlays/prod/training.yaml, or name yours in cluster.runtime of the recipe."
        yield check_exists(f"training runtime {runtime}", lambda: read_runtime(*where), remedy)

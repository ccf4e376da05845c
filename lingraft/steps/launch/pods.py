"""The pods of a step that is launched on Kubernetes, from its profile; as plain as their YAML."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lingraft import ranks
from lingraft.artifacts import sync
from lingraft.config.cluster import Cluster, Profile
from lingraft.config.search import SEARCH_STORAGE
from lingraft.jobs import shared_results
from lingraft.training import metrics

USER_ID = 10001
"""The images' user: the namespace's pod security admits no root."""
TRACKING_KEYS = ("MLFLOW_TRACKING_URI",)
CREDENTIAL_KEYS = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", SEARCH_STORAGE)
"""Taken from the same Secret where it has them."""
STORAGE_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION")
CACHES = {"LINGRAFT_CACHE": "lingraft", "HF_HOME": "huggingface"}
"""Folders on the claim, so that text is brought once and not into a pod that goes."""
CONTAINER = "step"
LABEL = "lingraft.io/call"
METRICS_PORT = 9400
METRICS_LABEL = "lingraft.io/metrics"
"""Of pods that answer there while they train, so that Prometheus finds them."""
STEP = {"app.kubernetes.io/name": "lingraft", "app.kubernetes.io/component": "step", METRICS_LABEL: "true"}
"""Labels of what is launched, by which network policies know it."""
STOP_S = 60
"""From SIGTERM to SIGKILL: a checkpoint takes 25 seconds at most."""

Manifest = dict[str, Any]


def pod(cluster: Cluster, profile: Profile, command: Sequence[str], labels: Mapping[str, str]) -> Manifest:
    """Template of the one pod of a Job."""
    container = {
        "name": CONTAINER,
        "image": cluster.image,
        "command": ["python", *command],
        "env": environment(cluster, profile),
        "resources": resources(profile),
        "volumeMounts": mounts(cluster, profile),
        "securityContext": container_security(),
    }
    return {"metadata": {"labels": dict(labels)}, "spec": placement(profile) | pod_spec(cluster, profile, [container])}


def container_security() -> Manifest:
    """Of every container."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}


def pod_spec(cluster: Cluster, profile: Profile, containers: list[Manifest]) -> Manifest:
    """A pod around containers."""
    account = {"serviceAccountName": cluster.service_account} if cluster.service_account else {}
    return account | {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": STOP_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": containers,
        "volumes": volumes(cluster, profile),
    }


def placement(profile: Profile) -> Manifest:
    """Where pods may stand, and before whom."""
    placed: Manifest = {}
    if profile.node_selector:
        placed["nodeSelector"] = dict(profile.node_selector)
    if profile.tolerations:
        placed["tolerations"] = [each.model_dump(exclude_defaults=False) for each in profile.tolerations]
    if profile.priority_class:
        placed["priorityClassName"] = profile.priority_class
    return placed


def resources(profile: Profile) -> Manifest:
    """Requests, which are limits at the same time."""
    asked = {"cpu": profile.cpu, "memory": profile.memory}
    if profile.ephemeral_storage:
        asked["ephemeral-storage"] = profile.ephemeral_storage
    if profile.accelerator:
        asked[profile.accelerator] = str(profile.accelerator_count)
    return {"requests": asked, "limits": dict(asked)}


def variables(cluster: Cluster) -> dict[str, str]:
    """What every step reads, one of KFP or one that it launches; the user id has no home of its own in the image."""
    plain = {"HOME": "/tmp", sync.RESULTS_VARIABLE: cluster.results_place, shared_results.IMAGE_VARIABLE: cluster.image}
    return plain | {name: f"{cluster.storage_path}/{folder}" for name, folder in CACHES.items()}


def environment(cluster: Cluster, profile: Profile) -> list[Manifest]:
    """What a launched step reads."""
    plain = variables(cluster) | {metrics.PORT: str(METRICS_PORT)}
    if profile.processes > profile.nodes:
        plain[ranks.PROCESSES_VARIABLE] = str(profile.processes // profile.nodes)
    if wait := os.environ.get("LINGRAFT_TRACKING_WAIT_S"):
        plain["LINGRAFT_TRACKING_WAIT_S"] = wait
    return [{"name": name, "value": value} for name, value in plain.items()] + [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": optional}}}
        for secret, keys, optional in secrets(cluster)
        for key in keys
    ]


def secrets(cluster: Cluster) -> Sequence[tuple[str, Sequence[str], bool]]:
    """Secrets that every step reads, their keys, and whether a step can do without."""
    tracking = (cluster.tracking_secret, TRACKING_KEYS, False), (cluster.tracking_secret, CREDENTIAL_KEYS, True)
    return (*tracking, (cluster.storage_secret, STORAGE_KEYS, True)) if cluster.storage_secret else tracking


def volumes(cluster: Cluster, profile: Profile) -> list[Manifest]:
    """The claim, a place for temporary files, and shared memory."""
    found: list[Manifest] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": cluster.storage_claim}},
        {"name": "tmp", "emptyDir": {"sizeLimit": profile.ephemeral_storage} if profile.ephemeral_storage else {}},
    ]
    if profile.shared_memory:
        found.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": profile.shared_memory}})
    return found


def mounts(cluster: Cluster, profile: Profile) -> list[Manifest]:
    """Where they are."""
    found = [{"name": "data", "mountPath": cluster.storage_path}, {"name": "tmp", "mountPath": "/tmp"}]
    if profile.shared_memory:
        found.append({"name": "shm", "mountPath": "/dev/shm"})
    return found

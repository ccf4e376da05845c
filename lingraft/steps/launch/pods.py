"""Pods of launched steps as plain Kubernetes objects, from the step's profile."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lingraft import ranks
from lingraft.artifacts.cache import RESULTS_VARIABLE
from lingraft.config.cluster import Cluster, Profile
from lingraft.config.search import SEARCH_STORAGE
from lingraft.training import metrics

USER_ID = 10001
"""User id of the images; the namespace's pod security admits no root."""
TRACKING_KEYS = ("MLFLOW_TRACKING_URI",)
CREDENTIAL_KEYS = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", SEARCH_STORAGE)
"""Keys that the same Secret may have."""
STORAGE_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION")
HUB_KEYS = ("HF_TOKEN",)
CACHES = {"LINGRAFT_CACHE": "lingraft", "HF_HOME": "huggingface"}
"""Cache folders on the claim by environment variable, so that downloads outlive the pods."""
CONTAINER = "step"
LABEL = "lingraft.io/call"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
METRICS_PORT = 9400
METRICS_LABEL = "lingraft.io/metrics"
"""Label of pods that serve metrics at that port while they train, by which Prometheus finds them."""
STEP = {
    "app.kubernetes.io/name": "lingraft",
    "app.kubernetes.io/component": "step",
    "sidecar.istio.io/inject": "false",
    METRICS_LABEL: "true",
}
"""Labels of launched pods, which network policies select. A sidecar of Istio would keep a Job from ending."""
UNDISTURBED = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
"""Annotations by which Karpenter and the cluster autoscaler leave a pod's node alone until the pod has ended."""
STOP_S = 60
"""Seconds from SIGTERM to SIGKILL; a checkpoint takes 25 at most, and the endpoint ends accepted requests within 30."""

Manifest = dict[str, Any]


def pod(cluster: Cluster, profile: Profile, command: Sequence[str], labels: Mapping[str, str]) -> Manifest:
    """Return the template of a Job's only pod."""
    container = {
        "name": CONTAINER,
        "image": cluster.image,
        "command": ["python", *command],
        "env": environment(cluster, profile),
        "resources": resources(profile),
        "volumeMounts": mounts(cluster, profile),
        "securityContext": container_security(),
    }
    metadata = {"labels": dict(labels), "annotations": annotations(profile)}
    return {"metadata": metadata, "spec": placement(profile) | pod_spec(cluster, profile, [container])}


def annotations(profile: Profile) -> dict[str, str]:
    """Return the annotations of a pod that trains or reads all text of a language, or that waits for one that trains.

    With `spot` a pod may be interrupted cheaply: it writes a checkpoint when it is asked to stop, and is launched
    again. Light steps have no annotations either: they take minutes. All other pods keep their nodes, since Kubeflow
    Pipelines fails a run whose pod is evicted, and a training that is launched again waits for a node.
    """
    return {} if profile.spot else dict(UNDISTURBED)


def container_security() -> Manifest:
    """Return the security context of every container."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}


def pod_security() -> Manifest:
    """Return the fields of every pod by which it has no rights on the cluster, is not root, and has time to end."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": STOP_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def pod_spec(cluster: Cluster, profile: Profile, containers: list[Manifest]) -> Manifest:
    """Return the specification of a pod with these containers."""
    account = {"serviceAccountName": cluster.service_account} if cluster.service_account else {}
    return account | {
        **pod_security(),
        "restartPolicy": "Never",
        "containers": containers,
        "volumes": volumes(cluster, profile),
    }


def placement(profile: Profile) -> Manifest:
    """Return node selector, tolerations and priority class of a profile's pods."""
    placed: Manifest = {}
    if profile.node_selector:
        placed["nodeSelector"] = dict(profile.node_selector)
    if profile.tolerations:
        placed["tolerations"] = [each.model_dump(exclude_defaults=False) for each in profile.tolerations]
    if profile.priority_class:
        placed["priorityClassName"] = profile.priority_class
    return placed


def resources(profile: Profile) -> Manifest:
    """Return the resource requests of a profile, which are its limits too."""
    asked = {"cpu": profile.cpu, "memory": profile.memory}
    if profile.ephemeral_storage:
        asked["ephemeral-storage"] = profile.ephemeral_storage
    if profile.accelerator:
        asked[profile.accelerator] = str(profile.accelerator_count)
    return {"requests": asked, "limits": dict(asked)}


def variables(cluster: Cluster) -> dict[str, str]:
    """Return the environment variables of every step, in KFP or launched; the image's user has no home folder."""
    plain = {"HOME": "/tmp", RESULTS_VARIABLE: cluster.results_place}
    return plain | {name: f"{cluster.storage_path}/{folder}" for name, folder in CACHES.items()}


def environment(cluster: Cluster, profile: Profile) -> list[Manifest]:
    """Return the environment of a launched step."""
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
    """Return the Secrets of every step: name, keys, and whether they are optional."""
    tracking = (cluster.tracking_secret, TRACKING_KEYS, False), (cluster.tracking_secret, CREDENTIAL_KEYS, True)
    storage = ((cluster.storage_secret, STORAGE_KEYS, True),) if cluster.storage_secret else ()
    hub = ((cluster.hub_secret, HUB_KEYS, False),) if cluster.hub_secret else ()
    return *tracking, *storage, *hub


def volumes(cluster: Cluster, profile: Profile) -> list[Manifest]:
    """Return the volumes of a pod: the claim, temporary files, and shared memory."""
    found: list[Manifest] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": cluster.storage_claim}},
        {"name": "tmp", "emptyDir": {"sizeLimit": profile.ephemeral_storage} if profile.ephemeral_storage else {}},
    ]
    if profile.shared_memory:
        found.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": profile.shared_memory}})
    return found


def mounts(cluster: Cluster, profile: Profile) -> list[Manifest]:
    """Return the mounts of these volumes."""
    found = [{"name": "data", "mountPath": cluster.storage_path}, {"name": "tmp", "mountPath": "/tmp"}]
    if profile.shared_memory:
        found.append({"name": "shm", "mountPath": "/dev/shm"})
    return found

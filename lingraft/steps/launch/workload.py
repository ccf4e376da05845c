"""What is launched on Kubernetes: a Job, or a TrainJob where several nodes train together."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kubernetes import client, watch

from lingraft import ranks
from lingraft.config.cluster import Cluster, Profile
from lingraft.steps.launch import pods
from lingraft.steps.launch.handover import CallAttempt
from lingraft.steps.launch.pods import CONTAINER, LABEL, Manifest

DELETED = "Deleted"
"""Our own word, beside those of Kubernetes, for why one failed."""
_GONE = "gone"
"""Marks what was deleted."""
_CONNECT_S = 15
_KEPT_S = 86_400
"""For which a finished one stays, to be looked at."""
_MANAGER = "lingraft.io/launcher"
_NODE = "node"
"""Name that the torch runtime gives to its replicated job and to its container."""


class WorkloadPhase(StrEnum):
    """Of a workload."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class WorkloadState(NamedTuple):
    """Where one stands."""

    phase: WorkloadPhase
    reason: str = ""
    """Why it failed, in one word of Kubernetes."""
    message: str = ""


@dataclass(frozen=True)
class WorkloadKind:
    """How Kubernetes calls a kind of workload, and where its pods are found."""

    group: str
    version: str
    plural: str
    pods: str
    """Selector of its pods, by its name."""
    main_pod: str
    """What selects among them the one whose log counts."""
    container: str
    """In which the step runs."""

    @property
    def api_version(self) -> str:
        """As manifests have it."""
        return f"{self.group}/{self.version}"


JOB = WorkloadKind("batch", "v1", "jobs", "batch.kubernetes.io/job-name={name}", "", CONTAINER)
TRAIN_JOB = WorkloadKind(
    group="trainer.kubeflow.org",
    version="v1alpha1",
    plural="trainjobs",
    pods="jobset.sigs.k8s.io/jobset-name={name}",
    main_pod=",batch.kubernetes.io/job-completion-index=0",
    container=_NODE,
)
KINDS = {"Job": JOB, "TrainJob": TRAIN_JOB}


def job(metadata: Manifest, cluster: Cluster, profile: Profile, attempt: CallAttempt) -> Manifest:
    """A Job of one pod, which Kubernetes itself never tries again: its launcher knows better what may heal."""
    spec: Manifest = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": _KEPT_S,
        "template": pods.pod(cluster, profile, attempt.command("step"), metadata["labels"]),
    }
    if profile.time_limit_s:
        spec["activeDeadlineSeconds"] = profile.time_limit_s
    return {"apiVersion": JOB.api_version, "kind": "Job", "metadata": metadata, "spec": spec}


def train_job(metadata: Manifest, cluster: Cluster, profile: Profile, attempt: CallAttempt) -> Manifest:
    """A TrainJob of several nodes under the torch runtime, which tells each node its place among them."""
    container = {
        "name": _NODE,
        "volumeMounts": pods.mounts(cluster, profile),
        "securityContext": pods.container_security(),
    }
    shell = pods.pod_spec(cluster, profile, [container])
    patched = ("terminationGracePeriodSeconds", "securityContext", "containers", "volumes", "serviceAccountName")
    pod = {field: shell[field] for field in patched if field in shell} | pods.placement(profile)
    pods_of_nodes = {"spec": {"template": {"metadata": {"labels": metadata["labels"]}, "spec": pod}}}
    job_set = {"spec": {"replicatedJobs": [{"name": _NODE, "template": pods_of_nodes}]}}
    spec: Manifest = {
        "runtimeRef": {
            "apiGroup": TRAIN_JOB.group,
            "kind": "ClusterTrainingRuntime",
            "name": cluster.runtime,
        },
        "trainer": {
            "image": cluster.image,
            "command": ["python", *attempt.command("node")],
            "env": [
                *pods.environment(cluster, profile),
                {"name": ranks.NODES_FOLDER_VARIABLE, "value": str(attempt.rendezvous)},
            ],
            "numNodes": profile.nodes,
            "numProcPerNode": profile.processes // profile.nodes,
            "resourcesPerNode": pods.resources(profile),
        },
        "runtimePatches": [{"manager": _MANAGER, "trainingRuntimeSpec": {"template": job_set}}],
    }
    if profile.time_limit_s:
        spec["activeDeadlineSeconds"] = profile.time_limit_s
    return {"apiVersion": TRAIN_JOB.api_version, "kind": "TrainJob", "metadata": metadata, "spec": spec}


MANIFESTS = {"Job": job, "TrainJob": train_job}


class Workloads:
    """Those of one kind in one namespace, by the client's calls for objects of any kind."""

    def __init__(self, api: client.ApiClient, kind: WorkloadKind, namespace: str) -> None:
        """Say where, and which."""
        self._objects, self._kind, self._namespace = client.CustomObjectsApi(api), kind, namespace
        self._where = kind.group, kind.version, namespace, kind.plural

    def create(self, manifest: Manifest) -> Manifest:
        """Create one."""
        return dict(self._objects.create_namespaced_custom_object(*self._where, manifest))

    def of_call(self, key: str) -> list[Manifest]:
        """Those that were launched for a call, the newest last."""
        found = self._objects.list_namespaced_custom_object(*self._where, label_selector=f"{LABEL}={key}")
        return sorted(found["items"], key=lambda each: int(each["metadata"]["name"].rpartition("-")[2]))

    def read(self, name: str) -> Manifest:
        """One by its name."""
        return dict(self._objects.get_namespaced_custom_object(*self._where, name))

    def delete(self, name: str) -> None:
        """End one, its pods after it."""
        self._objects.delete_namespaced_custom_object(*self._where, name, propagation_policy="Background")

    def changes(self, workload: Manifest, timeout_s: int) -> Iterator[Manifest]:
        """One as it changes, for so many seconds at most.

        Raises:
            ApiException: with status 410, what was known of it is too old to go on from.
        """
        metadata, listed = workload["metadata"], self._objects.list_namespaced_custom_object
        selected = {"field_selector": f"metadata.name={metadata['name']}", "timeout_seconds": timeout_s}
        # The server ends the watch by the one; by the other we notice a connection that has died silently.
        selected["_request_timeout"] = (_CONNECT_S, timeout_s + _CONNECT_S)
        version = metadata["resourceVersion"]
        for event in watch.Watch().stream(listed, *self._where, **selected, resource_version=version):
            yield mark_deleted(event["raw_object"]) if event["type"] == "DELETED" else event["raw_object"]


def mark_deleted(workload: Manifest) -> Manifest:
    """What was known of a workload that was deleted."""
    return workload | {_GONE: True}


def state_of(workload: Manifest) -> WorkloadState:
    """Where a workload stands, by its conditions, which Job and TrainJob name alike."""
    if _GONE in workload:
        return WorkloadState(WorkloadPhase.FAILED, DELETED, "somebody deleted it")
    for condition in workload.get("status", {}).get("conditions", ()):
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            phase = WorkloadPhase.SUCCEEDED if condition["type"] == "Complete" else WorkloadPhase.FAILED
            return WorkloadState(phase, condition.get("reason", ""), condition.get("message", ""))
    return WorkloadState(WorkloadPhase.RUNNING)

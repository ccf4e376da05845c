"""Workloads on Kubernetes: a Job, or a TrainJob where several nodes train together."""

import datetime
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import urllib3
from kubernetes import client
from kubernetes.client.rest import ApiException

from lingraft import ranks
from lingraft.config.cluster import Cluster, Profile
from lingraft.steps.launch import pods
from lingraft.steps.launch.handover import CallAttempt
from lingraft.steps.launch.pods import CONTAINER, LABEL, Manifest

TRANSIENT = {410, 429, 500, 502, 503, 504}
"""HTTP statuses with which the API server refuses for a while."""
UNREACHABLE = (urllib3.exceptions.HTTPError, ConnectionError)
_UNAUTHORIZED = 401
_NOT_FOUND = 404
REQUEST_S = 15
"""Seconds after which a request fails, which detects a dead connection."""
_KEPT_S = 86_400
"""Seconds for which a finished workload stays, for inspection."""
_MANAGER = "lingraft.io/launcher"
_NODE = "node"
"""Name of the torch runtime's replicated job and of its container."""


class WorkloadPhase(StrEnum):
    """Phase of a workload."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class WorkloadState(NamedTuple):
    """State of a workload."""

    phase: WorkloadPhase
    reason: str = ""
    """Reason of failure, in one word of Kubernetes."""
    message: str = ""


@dataclass(frozen=True)
class WorkloadKind:
    """A kind of workload: its names in Kubernetes, and the selectors of its pods."""

    group: str
    version: str
    plural: str
    pods: str
    """Label selector of the pods; `{name}` is the workload's name."""
    main_pod: str
    """Further selector of the pod whose log is shown."""
    container: str
    """Name of the container in which the step runs."""

    @property
    def api_version(self) -> str:
        """Value of `apiVersion` in manifests."""
        return f"{self.group}/{self.version}"


JOB = WorkloadKind(
    group="batch",
    version="v1",
    plural="jobs",
    pods="batch.kubernetes.io/job-name={name}",
    main_pod="",
    container=CONTAINER,
)
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
    """Return a Job of one pod without retries by Kubernetes: the launcher decides on retries."""
    spec: Manifest = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": _KEPT_S,
        "template": pods.pod(cluster, profile, attempt.command("step"), metadata["labels"]),
    }
    if profile.time_limit_s:
        spec["activeDeadlineSeconds"] = profile.time_limit_s
    return {"apiVersion": JOB.api_version, "kind": "Job", "metadata": metadata, "spec": spec}


def train_job(metadata: Manifest, cluster: Cluster, profile: Profile, attempt: CallAttempt) -> Manifest:
    """Return a TrainJob of several nodes under the torch runtime, which gives each node its rank."""
    container = {
        "name": _NODE,
        "volumeMounts": pods.mounts(cluster, profile),
        "securityContext": pods.container_security(),
    }
    shell = pods.pod_spec(cluster, profile, [container])
    patched = ("terminationGracePeriodSeconds", "securityContext", "containers", "volumes", "serviceAccountName")
    pod = {field: shell[field] for field in patched if field in shell} | pods.placement(profile)
    of_pods = {"labels": metadata["labels"], "annotations": pods.annotations(profile)}
    pods_of_nodes = {"spec": {"template": {"metadata": of_pods, "spec": pod}}}
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
    """Workloads of one kind in one namespace, by the client's API for custom objects."""

    def __init__(self, api: client.ApiClient, kind: WorkloadKind, namespace: str) -> None:
        """Choose the kind and the namespace."""
        self._objects = client.CustomObjectsApi(api)
        self._kind = kind
        self._where = {
            "group": kind.group,
            "version": kind.version,
            "namespace": namespace,
            "plural": kind.plural,
        }

    def create(self, manifest: Manifest) -> Manifest:
        """Create a workload, and return it."""
        return dict(self._objects.create_namespaced_custom_object(**self._where, body=manifest))

    def of_call(self, key: str) -> list[Manifest]:
        """Return the workloads that were launched for a call, the newest last."""
        found = self._objects.list_namespaced_custom_object(**self._where, label_selector=f"{LABEL}={key}")
        return sorted(found["items"], key=lambda each: int(each["metadata"]["name"].rpartition("-")[2]))

    def read(self, name: str) -> Manifest:
        """Return a workload by its name."""
        return dict(self._objects.get_namespaced_custom_object(**self._where, name=name, _request_timeout=REQUEST_S))

    def delete_expired(self) -> None:
        """Delete launched workloads of all calls that ended a day ago; a TrainJob has no field for that, unlike a Job.

        The JobSet's own field does not do: Trainer then makes the JobSet again (kubeflow/trainer#3779).
        """
        if self._kind is TRAIN_JOB:
            found = self._objects.list_namespaced_custom_object(**self._where, label_selector=LABEL)
            now = datetime.datetime.now(datetime.UTC)
            for each in found["items"]:
                if (ended := _ended_at(each)) and now - ended > datetime.timedelta(seconds=_KEPT_S):
                    try:
                        self.delete(each["metadata"]["name"])
                    except ApiException as error:
                        if not is_absent(error):  # another launcher was faster
                            raise

    def delete(self, name: str) -> None:
        """Delete a workload; Kubernetes then deletes its pods."""
        self._objects.delete_namespaced_custom_object(**self._where, name=name, propagation_policy="Background")


def state_of(workload: Manifest) -> WorkloadState:
    """Return the state of a workload by its conditions, which Job and TrainJob name alike."""
    if not (condition := _final_condition(workload)):
        return WorkloadState(WorkloadPhase.RUNNING)
    phase = WorkloadPhase.SUCCEEDED if condition["type"] == "Complete" else WorkloadPhase.FAILED
    return WorkloadState(phase, condition.get("reason", ""), condition.get("message", ""))


def _final_condition(workload: Manifest) -> Manifest | None:
    for condition in workload.get("status", {}).get("conditions", ()):
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            return dict(condition)
    return None


def _ended_at(workload: Manifest) -> datetime.datetime | None:
    condition = _final_condition(workload)
    return datetime.datetime.fromisoformat(condition["lastTransitionTime"]) if condition else None


def is_suspended(workload: Manifest) -> bool:
    """Return whether a workload has no pods on purpose, as Kueue keeps it until its queue has room."""
    return bool(workload.get("spec", {}).get("suspend"))


def format_api_error(error: Exception) -> str:
    """Return in one line why the API server did not do what it was asked for."""
    if isinstance(error, ApiException):
        return f"{error.status} {error.reason}: {error.body or ''}".strip()
    return str(error)


def is_absent(error: BaseException | None) -> bool:
    """Return whether the API server says that the object does not exist."""
    return isinstance(error, ApiException) and error.status == _NOT_FOUND


def is_unauthorized(error: BaseException | None) -> bool:
    """Return whether the API server does not know who asks, as with a token that has expired."""
    return isinstance(error, ApiException) and error.status == _UNAUTHORIZED


def is_transient(error: BaseException | None) -> bool:
    """Return whether the API server may answer the same request later."""
    return isinstance(error, UNREACHABLE) or (isinstance(error, ApiException) and error.status in TRANSIENT)

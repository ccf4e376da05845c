"""No container runs with more rights than it needs, or without a bound on what it takes."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.manifests.conftest import labels_of, pod_of
from tests.manifests.policy import pod_violations

Document = dict[str, Any]


def test_every_pod_keeps_the_policy(pods: dict[str, Document]) -> None:
    assert len(pods) >= 2
    for name, pod in pods.items():
        ends = name.startswith(("ClusterTrainingRuntime/", "Job/", "CronJob/"))
        assert not list(pod_violations(pod, served=not ends)), name


def test_istio_adds_no_container_to_any_pod(documents: list[Document]) -> None:
    started = [document for document in documents if pod_of(document)]
    assert len(started) >= 4
    for document in started:
        assert labels_of(document)["sidecar.istio.io/inject"] == "false", document["metadata"]["name"]


def _parent(pod: Document, path: tuple[str | int, ...]) -> Any:
    node: Any = pod
    for step in path[:-1]:
        node = node[step]
    return node


def _drop(*path: str | int) -> Callable[[Document], None]:
    def change(pod: Document) -> None:
        del _parent(pod, path)[path[-1]]

    return change


def _put(*path: str | int, value: object) -> Callable[[Document], None]:
    def change(pod: Document) -> None:
        _parent(pod, path)[path[-1]] = value

    return change


MAIN = ("containers", 0)
INIT = ("initContainers", 0)


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        (_drop("securityContext", "runAsNonRoot"), "runs as root"),
        (_put("securityContext", "runAsUser", value=0), "runs as root"),
        (_drop("securityContext", "seccompProfile"), "no seccomp profile"),
        (_put("hostNetwork", value=True), "shares a namespace of its node"),
        (_drop("automountServiceAccountToken"), "mounts a token"),
        (_drop("enableServiceLinks"), "takes variables from Services"),
        (_put("volumes", 0, value={"name": "host", "hostPath": {"path": "/"}}), "mounts its node"),
        (_drop(*MAIN, "livenessProbe"), "no livenessProbe"),
        (_drop(*MAIN, "readinessProbe"), "no readinessProbe"),
        (_drop(*MAIN, "startupProbe"), "no startupProbe"),
        (_drop(*MAIN, "resources", "limits", "memory"), "no limits of memory"),
        (_drop(*MAIN, "resources", "requests", "cpu"), "no requests of cpu"),
        (_drop(*INIT, "resources"), "no limits of cpu"),
        (_drop(*INIT, "securityContext", "allowPrivilegeEscalation"), "may gain privileges"),
        (_put(*MAIN, "securityContext", "privileged", value=True), "may gain privileges"),
        (_put(*MAIN, "securityContext", "capabilities", "add", value=["SYS_ADMIN"]), "keeps capabilities"),
        (_drop(*INIT, "securityContext", "capabilities"), "keeps capabilities"),
        (_put(*MAIN, "securityContext", "runAsUser", value=0), "overrides the pod"),
        (_drop(*MAIN, "securityContext", "readOnlyRootFilesystem"), "writes to its image"),
        (_put(*MAIN, "volumeMounts", value=[]), "no /tmp"),
        (_put(*MAIN, "image", value="registry:5000/mlflow"), "image without a fixed tag"),
        (_put(*MAIN, "image", value="mlflow:latest"), "image without a fixed tag"),
    ],
)
def test_the_policy_notices(pods: dict[str, Document], change: Callable[[Document], None], violation: str) -> None:
    pod = copy.deepcopy(pods["Deployment/mlflow"])
    change(pod)
    assert violation in set(pod_violations(pod, served=True))

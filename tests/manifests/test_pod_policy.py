"""No container runs with more rights than it needs, or without a bound on what it takes."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

Document = dict[str, Any]
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
# https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
RESTRICTED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir"}
RESTRICTED_VOLUMES |= {"ephemeral", "persistentVolumeClaim", "projected", "secret"}


def pod_violations(pod: Document, *, served: bool) -> Iterator[str]:
    """What a pod breaks; `served` pods run until stopped, so that their containers need probes."""
    context = pod.get("securityContext", {})
    kept = {
        "runs as root": context.get("runAsNonRoot") is True and context.get("runAsUser"),
        "no seccomp profile": context.get("seccompProfile") == {"type": "RuntimeDefault"},
        "shares a namespace of its node": not {"hostNetwork", "hostPID", "hostIPC"} & set(pod),
        "mounts a token": pod.get("automountServiceAccountToken") is False,
        "takes variables from Services": pod.get("enableServiceLinks") is False,
        "mounts its node": all(set(volume) <= {"name"} | RESTRICTED_VOLUMES for volume in pod["volumes"]),
    }
    yield from (violation for violation, holds in kept.items() if not holds)
    for container in (*pod.get("initContainers", []), *pod["containers"]):
        yield from container_violations(container)
    for container in pod["containers"] if served else ():
        yield from (f"no {probe}" for probe in PROBES if probe not in container)


def container_violations(container: Document) -> Iterator[str]:
    """What a container breaks."""
    context = container.get("securityContext", {})
    mounts = {mount["mountPath"] for mount in container.get("volumeMounts", [])}
    tag = container["image"].rpartition("/")[2].partition(":")[2]
    kept = {
        "may gain privileges": context.get("allowPrivilegeEscalation") is False and not context.get("privileged"),
        "keeps capabilities": context.get("capabilities") == {"drop": ["ALL"]},
        "writes to its image": context.get("readOnlyRootFilesystem") is True,
        "overrides the pod": not {"runAsUser", "runAsNonRoot", "seccompProfile"} & set(context),
        "no /tmp": "/tmp" in mounts,
        "image without a fixed tag": tag not in {"", "latest"},
    }
    yield from (violation for violation, holds in kept.items() if not holds)
    for kind in ("requests", "limits"):
        missing = {"cpu", "memory"} - set(container.get("resources", {}).get(kind, {}))
        yield from (f"no {kind} of {resource}" for resource in sorted(missing))


def test_every_pod_keeps_the_policy(pods: dict[str, Document]) -> None:
    assert len(pods) >= 2
    for name, pod in pods.items():
        assert not list(pod_violations(pod, served=not name.startswith("ClusterTrainingRuntime/"))), name


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

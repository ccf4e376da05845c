"""What a pod of ours may not do; the namespace's own admission says the same."""

from collections.abc import Iterator
from typing import Any

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

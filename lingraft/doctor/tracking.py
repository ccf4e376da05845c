"""What steps and MLflow are told by Secrets, and whether MLflow runs."""

import base64
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from kubernetes import client

from lingraft.doctor.findings import Finding, Findings, check_reachable
from lingraft.doctor.reach import Address, check_mlflow
from lingraft.steps.launch.pods import TRACKING_KEYS

_DEPLOYMENT = "mlflow"
"""Of the overlays, and their service; one by another name is somebody's own."""


def check_tracking(api: client.ApiClient, namespace: str, secret: str) -> Iterator[Finding]:
    """Whether steps are told where MLflow is, and it answers there and reaches its store.

    Args:
        api: of the cluster.
        namespace: of the steps.
        secret: that tells them.
    """
    first = f"--from-literal={TRACKING_KEYS[0]}=..."
    remedy = f"Create it: kubectl -n {namespace} create secret generic {secret} {first}"
    told = (yield from _secret(api, namespace, secret, TRACKING_KEYS, remedy)) or {}
    address, runs = Address.of(told.get(TRACKING_KEYS[0], ""), namespace), None
    if address is None or (address.service, address.namespace) == (_DEPLOYMENT, namespace):
        what, apply = f"deployment {_DEPLOYMENT}", "Apply an overlay: kubectl apply -k manifests/overlays/prod"
        runs = yield from check_reachable(what, apply, _deployment(api, namespace, what))
    if address is None:
        gap = f"cannot be asked: Secret {secret} names no server, such as http://mlflow:5000"
        yield Finding("MLflow", gap, remedy)
    else:
        yield from check_mlflow(api, address, told, bool(runs))


def _secret(
    api: client.ApiClient, namespace: str, name: str, keys: Iterable[str], remedy: str
) -> Findings[dict[str, str] | None]:
    """Whether a Secret has all keys; returns what it has."""
    return check_reachable(f"Secret {name}", remedy, _keys(api, namespace, name, keys, remedy))


def _keys(
    api: client.ApiClient, namespace: str, name: str, keys: Iterable[str], remedy: str
) -> Findings[dict[str, str]]:
    data = client.CoreV1Api(api).read_namespaced_secret(name, namespace).data or {}
    missing = sorted({*keys} - data.keys())
    yield Finding(f"Secret {name}", f"has no key {', '.join(missing)}" if missing else "", remedy)
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}


def _deployment(api: client.ApiClient, namespace: str, what: str) -> Findings[bool]:
    """Whether a replica is available, and the Secrets that all of them read are there; returns the former."""
    found = client.AppsV1Api(api).read_namespaced_deployment(_DEPLOYMENT, namespace)
    runs = bool(found.status.available_replicas)
    remedy = f"Look at it: kubectl -n {namespace} describe deployment {_DEPLOYMENT}, and its log."
    yield Finding(what, "" if runs else "none of its replicas is available", remedy)
    for name, keys in sorted(_required_secrets(found.spec.template.spec).items()):
        yield from _secret(api, namespace, name, keys, "docs/operations/install.md has the command that creates it.")
    return runs


def _required_secrets(pod: Any) -> dict[str, set[str]]:
    """Keys by the Secrets that a pod cannot start without."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for container in (*(pod.init_containers or ()), *(pod.containers or ())):
        for source in container.env_from or ():
            if source.secret_ref and not source.secret_ref.optional:
                wanted[source.secret_ref.name] |= set()
        for variable in container.env or ():
            key = variable.value_from and variable.value_from.secret_key_ref
            if key and not key.optional:
                wanted[key.name].add(key.key)
    for volume in pod.volumes or ():
        if volume.secret and not volume.secret.optional:
            wanted[volume.secret.secret_name] |= {item.key for item in volume.secret.items or ()}
    return wanted

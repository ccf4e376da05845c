"""Where results and checkpoints are shared: a claim on the cluster, an object store."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from kubernetes import client

from lingraft.artifacts.storage import RemotePath, list_names
from lingraft.config.cluster import Cluster
from lingraft.doctor.findings import Finding, Findings, check_reachable
from lingraft.errors import LingraftError

_WAITS = "WaitForFirstConsumer"


def check_storage(api: client.ApiClient, namespace: str, cluster: Cluster) -> Iterator[Finding]:
    """Whether the claim can be mounted by all who need it, and whether the results' own store can be read."""
    remedy = "Apply an overlay, or name yours in cluster.storage_claim of the recipe."
    yield from check_reachable(_named(cluster.storage_claim), remedy, _claim(api, namespace, cluster))
    if cluster.results and "://" in cluster.results:
        yield _object_store(cluster.results)


def _named(claim: str) -> str:
    return f"volume claim {claim}"


def _claim(api: client.ApiClient, namespace: str, cluster: Cluster) -> Findings[None]:
    what = _named(cluster.storage_claim)
    claim = client.CoreV1Api(api).read_namespaced_persistent_volume_claim(cluster.storage_claim, namespace)
    if claim.status.phase == "Bound":
        yield Finding(what)
    else:
        waiting = f"{what}, which is {claim.status.phase}"
        yield from check_reachable(waiting, "Give the cluster a storage class.", _unbound(api, waiting, claim))
    if cluster.parallel_languages > 1 and "ReadWriteMany" not in claim.spec.access_modes:
        gap = f"can be mounted on one node only ({', '.join(claim.spec.access_modes)})"
        remedy = "On a cluster of several nodes, choose a storage class that can do ReadWriteMany."
        yield Finding(f"{what} on several nodes", gap, remedy)


def _unbound(api: client.ApiClient, what: str, claim: Any) -> Findings[None]:
    classes = {each.metadata.name: each for each in client.StorageV1Api(api).list_storage_class().items}
    name = claim.spec.storage_class_name
    if name not in classes:
        gap = f"is of storage class {name!r}; the cluster has {sorted(classes)}"
        yield Finding(what, gap, "Choose one of them in an overlay's storage.yaml.")
    elif classes[name].volume_binding_mode == _WAITS:
        remedy = "That is well before the first run; else `kubectl describe` it."
        yield Finding(what, f"storage class {name!r} waits for the first pod that mounts it", remedy, may_be_well=True)
    else:
        remedy = f"`kubectl describe` the claim, and see that what provides volumes of class {name!r} runs."
        yield Finding(what, f"storage class {name!r} has given it no volume", remedy)


def _object_store(uri: str) -> Finding:
    """Whether it can be read from here, with the keys of this environment; before the first run by its bucket."""
    what = f"object store {uri}"
    try:
        place = RemotePath.of(uri)
        list_names(place if place.exists() else replace(place, path=PurePosixPath(place.path).parts[0]))
    except LingraftError as error:
        return Finding(what, f"cannot be read: {error}", "Check the address, and the keys in the environment.")
    return Finding(what)

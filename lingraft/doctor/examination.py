"""All looks at one namespace of a cluster, for one recipe."""

import contextlib
from collections.abc import Iterable, Iterator

from kubernetes import client
from kubernetes.client.rest import ApiException

from lingraft.config.cluster import Cluster, Profile
from lingraft.doctor.findings import Finding, there
from lingraft.doctor.kinds import kinds
from lingraft.doctor.nodes import nodes
from lingraft.doctor.rights import own_rights, rights
from lingraft.doctor.storage import storage
from lingraft.doctor.tracking import tracking
from lingraft.steps.launch.workload import KINDS


def examined(api: client.ApiClient, namespace: str, cluster: Cluster) -> Iterator[Finding]:
    """Everything that was looked at, in the order in which to mend it; without an API there is nothing to look at.

    Args:
        api: of the cluster.
        namespace: where runs are to take place.
        cluster: what a recipe asks for.
    """
    answers = there("the cluster's API", lambda: _answer(api), "Check KUBECONFIG.")
    yield answers
    if answers.is_good:
        yield from _examined(api, namespace, cluster)


def _answer(api: client.ApiClient) -> None:
    with contextlib.suppress(ApiException):  # a refusal is an answer
        client.VersionApi(api).get_code()


def _examined(api: client.ApiClient, namespace: str, cluster: Cluster) -> Iterator[Finding]:
    profiles = _profiles(cluster)
    launched = {profile.launched for profile in profiles.values() if profile.launched}
    read, remedy = client.CoreV1Api(api).read_namespace, "Apply an overlay: kubectl apply -k manifests/overlays/prod"
    yield there(f"namespace {namespace}", lambda: read(namespace), remedy)
    yield from kinds(api, cluster.runtime if "TrainJob" in launched else None)
    yield from storage(api, namespace, cluster)
    yield from nodes(api, profiles)
    yield from _priorities(api, profiles.values())
    if launched:
        yield from rights(api, namespace, [KINDS[kind] for kind in sorted(launched)])
    yield from own_rights(api, namespace)
    yield from tracking(api, namespace, cluster.tracking_secret)


def _profiles(cluster: Cluster) -> dict[str, Profile]:
    """By name; that of launchers counts where something is launched."""
    training = {"training": cluster.training} | {str(stage): profile for stage, profile in cluster.stages.items()}
    launches = any(profile.launched for profile in training.values())
    return {"light": cluster.light} | ({"launcher": cluster.launcher} if launches else {}) | training


def _priorities(api: client.ApiClient, profiles: Iterable[Profile]) -> Iterator[Finding]:
    read = client.SchedulingV1Api(api).read_priority_class
    for name in sorted({each.priority_class for each in profiles if each.priority_class}):
        remedy = "Apply an overlay, or name one that `kubectl get priorityclasses` has."
        yield there(f"priority class {name}", lambda name=name: read(name), remedy)  # type: ignore[misc]

"""All looks at one namespace of a cluster, for one recipe."""

import contextlib
from collections.abc import Iterable, Iterator

from kubernetes import client
from kubernetes.client.rest import ApiException

from lingraft.config.cluster import Cluster, Profile
from lingraft.doctor.findings import Finding, check_exists
from lingraft.doctor.kinds import check_kinds
from lingraft.doctor.nodes import check_nodes
from lingraft.doctor.rights import check_launch_rights, check_own_rights
from lingraft.doctor.storage import check_storage
from lingraft.doctor.tracking import check_tracking
from lingraft.steps.launch.workload import KINDS


def examine(api: client.ApiClient, namespace: str, cluster: Cluster) -> Iterator[Finding]:
    """Everything that was looked at, in the order in which to mend it; without an API there is nothing to look at.

    Args:
        api: of the cluster.
        namespace: where runs are to take place.
        cluster: what a recipe asks for.
    """
    answers = check_exists("the cluster's API", lambda: _require_answer(api), "Check KUBECONFIG.")
    yield answers
    if answers.is_good:
        yield from _examine(api, namespace, cluster)


def _require_answer(api: client.ApiClient) -> None:
    with contextlib.suppress(ApiException):  # a refusal is an answer
        client.VersionApi(api).get_code()


def _examine(api: client.ApiClient, namespace: str, cluster: Cluster) -> Iterator[Finding]:
    profiles = _profiles(cluster)
    launched = {profile.launched for profile in profiles.values() if profile.launched}
    read, remedy = client.CoreV1Api(api).read_namespace, "Apply an overlay: kubectl apply -k manifests/overlays/prod"
    yield check_exists(f"namespace {namespace}", lambda: read(namespace), remedy)
    yield from check_kinds(api, cluster.runtime if "TrainJob" in launched else None)
    yield from check_storage(api, namespace, cluster)
    yield from check_nodes(api, profiles)
    yield from _priorities(api, profiles.values())
    if launched:
        yield from check_launch_rights(api, namespace, [KINDS[kind] for kind in sorted(launched)])
    yield from check_own_rights(api, namespace)
    yield from check_tracking(api, namespace, cluster.tracking_secret)


def _profiles(cluster: Cluster) -> dict[str, Profile]:
    """By name; that of launchers counts where something is launched."""
    training = {"training": cluster.training} | {str(stage): profile for stage, profile in cluster.stages.items()}
    launches = any(profile.launched for profile in training.values())
    return {"light": cluster.light} | ({"launcher": cluster.launcher} if launches else {}) | training


def _priorities(api: client.ApiClient, profiles: Iterable[Profile]) -> Iterator[Finding]:
    read = client.SchedulingV1Api(api).read_priority_class
    for name in sorted({each.priority_class for each in profiles if each.priority_class}):
        remedy = "Apply an overlay, or name one that `kubectl get priorityclasses` has."
        yield check_exists(f"priority class {name}", lambda name=name: read(name), remedy)  # type: ignore[misc]

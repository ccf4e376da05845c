"""Nodes that could take the pods of a profile: by labels, taints, and what they can give at all."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubernetes import client
from kubernetes.utils.quantity import parse_quantity

from lingraft.config.cluster import Profile, Toleration
from lingraft.doctor.findings import Finding, Findings, check_reachable
from lingraft.steps.launch.pods import resources

_EXCLUDING_EFFECTS = {"NoSchedule", "NoExecute"}


def check_nodes(api: client.ApiClient, profiles: Mapping[str, Profile]) -> Iterator[Finding]:
    """Whether the nodes of today could take each profile's pods, if nothing else ran on them."""
    return check_reachable("nodes", "Add nodes to the cluster.", _check_profiles(api, profiles))


def _check_profiles(api: client.ApiClient, profiles: Mapping[str, Profile]) -> Findings[None]:
    every = client.CoreV1Api(api).list_node().items
    for name, profile in profiles.items():
        yield _check_profile(name, profile, every)


def _check_profile(name: str, profile: Profile, every: Sequence[Any]) -> Finding:
    """A pool that grows may have no node before it is asked for one; where it has some, they show what they are."""
    wanted = "a node" if profile.nodes == 1 else f"{profile.nodes} nodes"
    what, selector = f"{wanted} for profile {name!r}", profile.node_selector
    labelled = [node for node in every if selector.items() <= (node.metadata.labels or {}).items()]
    if selector and not labelled:
        remedy = (
            "That is well where a pool with these labels grows on demand; else check the labels, or ask for others."
        )
        return Finding(what, f"no node of today has the labels {selector}", remedy, may_be_well=True)
    obstacles = [_obstacle(node, profile) for node in labelled]
    fitting = obstacles.count("")
    if fitting >= profile.nodes:
        return Finding(what)
    gap = f"{fitting} of {len(labelled)} nodes with its labels {selector or '(any)'} could take its pod"
    gap = "; ".join((gap, *(f"{count} {obstacle}" for obstacle, count in Counter(filter(None, obstacles)).items())))
    if fitting and selector:
        remedy = "That is well where the pool grows on demand; else add nodes to it, or ask for fewer."
        return Finding(what, gap, remedy, may_be_well=True)
    return Finding(what, gap, "Tolerate the taints in the profile, check the device plugin, or ask for less.")


def _obstacle(node: Any, profile: Profile) -> str:
    """Why a node could never take a pod; empty if it could."""
    if node.spec.unschedulable:
        return "cordoned"
    taints = [taint for taint in node.spec.taints or () if not _admits(profile.tolerations, taint)]
    if taints:
        named = (f"{taint.key}={taint.value or ''}:{taint.effect}" for taint in taints)
        return f"with a taint that it does not tolerate ({', '.join(named)})"
    gives, wanted = node.status.allocatable or {}, resources(profile)["requests"]
    short = [
        f"{quantity} {resource}"
        for resource, quantity in wanted.items()
        if parse_quantity(gives.get(resource, "0")) < parse_quantity(quantity)
    ]
    return f"without {', '.join(short)}" if short else ""


def _admits(tolerations: Sequence[Toleration], taint: Any) -> bool:
    return taint.effect not in _EXCLUDING_EFFECTS or any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Toleration, taint: Any) -> bool:
    """As Kubernetes has it: an empty key with Exists is any."""
    of_key = toleration.key == taint.key or (not toleration.key and toleration.operator == "Exists")
    of_value = toleration.operator == "Exists" or toleration.value == (taint.value or "")
    return toleration.effect == taint.effect and of_key and of_value

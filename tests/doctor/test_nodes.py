"""Which nodes could take the pods of a profile."""

from typing import Any

import pytest

from lingraft.config.cluster import Cluster, Profile, Toleration
from tests.doctor.clinic import CLUSTER, GPU, Clinic

WHAT = "2 nodes for profile 'pretraining'"


def _node(clinic: Clinic, name: str) -> Any:
    return clinic.server.objects["nodes", name]


def _tolerating(*tolerations: Toleration) -> Cluster:
    return CLUSTER.model_copy(
        update={"stages": {"pretraining": GPU.model_copy(update={"tolerations": tolerations, "nodes": 1})}}
    )


def test_nodes_that_are_too_small_are_none(clinic: Clinic) -> None:
    for name in ("one", "two"):
        _node(clinic, name)["status"]["allocatable"]["nvidia.com/gpu"] = "2"
    gap = clinic.the_gap()
    assert (gap.what, gap.is_lacking) == (WHAT, True)
    assert gap.gap.endswith("could take its pod; 2 without 4 nvidia.com/gpu")


def test_all_that_a_profile_asks_for_counts(clinic: Clinic) -> None:
    clinic.cluster = Cluster(training=Profile(ephemeral_storage="10Gi"))
    for name in ("one", "two"):
        _node(clinic, name)["status"]["allocatable"] = dict.fromkeys(("cpu", "memory", "ephemeral-storage"), "1")
    found = clinic.findings()["a node for profile 'training'"]
    assert found.is_lacking
    assert found.gap.endswith("; 2 without 2 cpu, 4Gi memory, 10Gi ephemeral-storage")


def test_a_pool_without_any_node_may_grow(clinic: Clinic) -> None:
    for name in ("one", "two"):
        _node(clinic, name)["metadata"]["labels"] = {"pool": "other"}
    warning = clinic.the_gap()
    assert (warning.what, warning.is_lacking) == (WHAT, False)
    assert warning.gap == "0 of 0 nodes with its labels {'pool': 'gpu'} could take its pod"
    assert "grows on demand" in warning.remedy


def test_too_few_nodes_are_a_warning_only_in_a_pool_that_may_grow(clinic: Clinic) -> None:
    clinic.server.remove("nodes", "two")
    warning = clinic.the_gap()
    assert (warning.what, warning.is_lacking) == (WHAT, False)
    assert warning.gap.startswith("1 of 1 nodes")
    clinic.cluster = Cluster(stages={"pretraining": Profile(nodes=3)})
    assert clinic.the_gap().is_lacking


def test_a_cordoned_node_is_none(clinic: Clinic) -> None:
    clinic.cluster = _tolerating()
    _node(clinic, "one")["spec"] = {"unschedulable": True}
    assert clinic.findings()["a node for profile 'pretraining'"].is_good
    _node(clinic, "two")["spec"] = {"unschedulable": True}
    assert clinic.findings()["a node for profile 'pretraining'"].gap.endswith("; 2 cordoned")


def _taint(effect: str = "NoSchedule", **more: str) -> dict[str, str]:
    return {"key": "spot", "effect": effect, **more}


SPOT = _taint(value="true")


@pytest.mark.parametrize(
    ("taint", "toleration", "tolerated"),
    [
        (SPOT, Toleration(key="spot"), True),
        (SPOT, Toleration(key="other"), False),
        (SPOT, Toleration(key=""), True),
        (SPOT, Toleration(key="", operator="Equal", value="true"), False),
        (SPOT, Toleration(key="spot", operator="Equal", value="false"), False),
        (_taint(value=""), Toleration(key="spot", operator="Equal"), True),
        (SPOT, Toleration(key="spot", effect="NoExecute"), False),
        (_taint("NoExecute", value="true"), Toleration(key="spot", effect="NoExecute"), True),
    ],
)
def test_taints_are_tolerated_as_kubernetes_does(
    taint: dict[str, str], toleration: Toleration, tolerated: bool
) -> None:
    assert toleration.tolerates(**taint) == tolerated


@pytest.mark.parametrize(
    ("taint", "tolerations", "is_good"), [(SPOT, (), False), (_taint("PreferNoSchedule", value="true"), (), True)]
)
def test_a_taint_that_is_not_tolerated_excludes_a_node(
    clinic: Clinic, taint: dict[str, str], tolerations: tuple[Toleration, ...], is_good: bool
) -> None:
    clinic.cluster = _tolerating(*tolerations)
    for name in ("one", "two"):
        _node(clinic, name)["spec"] = {"taints": [taint]}
    found = clinic.findings()["a node for profile 'pretraining'"]
    assert found.is_good == is_good
    assert is_good or "with a taint that it does not tolerate (spot=true:NoSchedule)" in found.gap

"""Quotas and limits that could never admit a profile's pods."""

from typing import Any

import pytest

from lingraft.config.cluster import Cluster, Profile
from tests.doctor.clinic import CLUSTER, Clinic

PRETRAINING = "quotas and limits for profile 'pretraining'"


def _quota(clinic: Clinic, hard: dict[str, str], **spec: Any) -> None:
    clinic.add("resourcequotas", "lingraft", spec={"hard": hard, **spec})


def _limits(clinic: Clinic, **limits: Any) -> None:
    clinic.add("limitranges", "lingraft", spec={"limits": [{"type": "Container"} | limits]})


def test_a_quota_too_small_for_all_nodes_of_a_profile_is_a_gap(clinic: Clinic) -> None:
    hard = {"requests.nvidia.com/gpu": "7", "requests.memory": "1Gi", "limits.memory": "1Gi", "cpu": "3"}
    _quota(clinic, hard)
    found = clinic.findings()[PRETRAINING]
    assert found.is_lacking
    assert all(f"quota lingraft has {amount} {key}" in found.gap for key, amount in hard.items())
    assert "limits.yaml" in found.remedy


def test_a_quota_that_fits_or_is_for_other_pods_or_profiles_is_well(clinic: Clinic) -> None:
    _quota(clinic, {"requests.nvidia.com/gpu": "8", "requests.memory": "24Gi", "pods": "50"})
    assert clinic.findings()[PRETRAINING].is_good
    _quota(clinic, {"requests.memory": "1Gi"}, scopes=["BestEffort"])
    assert clinic.findings()[PRETRAINING].is_good
    _quota(clinic, {"requests.nvidia.com/gpu": "0"})
    assert clinic.the_gap().what == PRETRAINING


@pytest.mark.parametrize(
    ("limits", "gap"),
    [
        ({"max": {"memory": "1Gi"}}, "it asks for 4Gi memory, but LimitRange lingraft has 0 to 1Gi"),
        ({"min": {"memory": "8Gi"}}, "it asks for 4Gi memory, but LimitRange lingraft has 8Gi or more"),
        ({"type": "Pod", "max": {"cpu": "1"}}, "it asks for 2 cpu, but LimitRange lingraft has 0 to 1"),
        ({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}, ""),
        ({"max": {"memory": "4Gi", "cpu": "2"}, "default": {"memory": "1Gi"}}, ""),
    ],
)
def test_a_request_outside_of_a_limit_range_is_a_gap(clinic: Clinic, limits: dict[str, Any], gap: str) -> None:
    clinic.cluster = Cluster(training=Profile(cpu="2", memory="4Gi"))
    _limits(clinic, **limits)
    found = clinic.findings()["quotas and limits for profile 'training'"]
    assert (found.gap, found.is_lacking) == (gap, bool(gap))


def test_the_clusters_own_profiles_are_looked_at(clinic: Clinic) -> None:
    _limits(clinic, max={"memory": "1Mi"})
    gaps = {what for what, found in clinic.findings().items() if found.is_lacking}
    profiles = ("light", "launcher", "training", *CLUSTER.stages)
    assert gaps == {f"quotas and limits for profile {name!r}" for name in profiles}

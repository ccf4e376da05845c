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


@pytest.mark.parametrize(
    ("key", "hard"),
    [
        ("requests.nvidia.com/gpu", "0"),
        ("requests.nvidia.com/gpu", "7"),
        ("requests.memory", "1Gi"),
        ("limits.memory", "1Gi"),
        ("memory", "1Gi"),
        ("cpu", "3"),
    ],
)
def test_a_quota_too_small_for_all_nodes_of_a_profile_is_a_gap(clinic: Clinic, key: str, hard: str) -> None:
    _quota(clinic, {key: hard})
    found = clinic.findings()[PRETRAINING]
    assert found.is_lacking
    assert f"quota lingraft has {hard} {key}" in found.gap
    assert "limits.yaml" in found.remedy


def test_a_quota_that_fits_is_well(clinic: Clinic) -> None:
    _quota(clinic, {"requests.nvidia.com/gpu": "8", "requests.memory": "24Gi", "pods": "50"})
    assert clinic.findings()[PRETRAINING].is_good


def test_a_quota_for_some_pods_only_does_not_count(clinic: Clinic) -> None:
    _quota(clinic, {"requests.memory": "1Gi"}, scopes=["BestEffort"])
    assert clinic.findings()[PRETRAINING].is_good


def test_only_profiles_that_a_quota_is_too_small_for_are_gaps(clinic: Clinic) -> None:
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

"""Where results are shared: the claim and its storage class."""

from typing import Any

import pytest

from tests.doctor.clinic import Clinic


@pytest.fixture
def claim(clinic: Clinic) -> Any:
    return clinic.server.objects["persistentvolumeclaims", "lingraft-data"]


def test_a_claim_for_one_node_is_too_little_for_languages_side_by_side(clinic: Clinic, claim: Any) -> None:
    claim["spec"]["accessModes"] = ["ReadWriteOnce"]
    assert "can be mounted on one node only" in clinic.the_gap().gap


@pytest.mark.parametrize(
    ("storage_class", "mode", "is_lacking"),
    [
        ("fast", "Immediate", True),
        ("shared", "WaitForFirstConsumer", False),
    ],
)
def test_a_claim_without_a_volume_is_a_gap_unless_its_class_waits_for_a_pod(
    clinic: Clinic, claim: Any, storage_class: str, mode: str, is_lacking: bool
) -> None:
    claim["status"]["phase"] = "Pending"
    claim["spec"]["storageClassName"] = storage_class
    clinic.server.objects["storageclasses", "shared"]["volumeBindingMode"] = mode
    gap = clinic.the_gap()
    assert gap.gap == f"is Pending, of storage class '{storage_class}'; the cluster has ['shared']"
    assert gap.is_lacking == is_lacking


FAILED = {"conditions": [{"type": "Failed", "status": "True", "message": "has reached the backoff limit"}]}


@pytest.mark.parametrize(
    ("mounted", "status", "gap", "is_lacking"),
    [
        ("lingraft-data", FAILED, "could not: has reached the backoff limit", True),
        ("lingraft-data", {"active": 1}, "has not ended", False),
        ("another", FAILED, "mounts another", False),
    ],
)
def test_a_claim_that_the_preparing_job_could_not_write_is_a_gap(
    clinic: Clinic, mounted: str, status: dict[str, Any], gap: str, is_lacking: bool
) -> None:
    clinic.end_preparation(mounted, **status)
    found = clinic.the_gap()
    assert found.what == "volume claim lingraft-data can be written"
    assert found.gap.endswith(gap)
    assert found.is_lacking == is_lacking
    assert "logs job/prepare-claim" in found.remedy


def test_without_the_preparing_job_nobody_knows_whether_a_claim_can_be_written(clinic: Clinic) -> None:
    clinic.server.remove("jobs", "prepare-claim")
    found = clinic.the_gap()
    assert found.what == "volume claim lingraft-data can be written"
    assert found.gap == "nobody knows: there is no Job prepare-claim"
    assert not found.is_lacking
    assert "kubectl apply -k" in found.remedy

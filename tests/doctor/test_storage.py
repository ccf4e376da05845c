"""Where results are shared: the claim and its storage class, an object store."""

import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import fsspec
import pytest
import s3fs
from moto.server import ThreadedMotoServer

from lingraft.config.cluster import Cluster
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


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client, name = boto3.client("s3"), f"results-{uuid.uuid4()}"
    client.create_bucket(Bucket=name)
    fsspec.config.conf.clear()
    s3fs.S3FileSystem.clear_instance_cache()
    yield name
    client.close()
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_a_folder_that_the_first_run_makes_in_a_bucket_is_well_and_a_bucket_that_is_not_there_is_none(
    clinic: Clinic, bucket: str
) -> None:
    clinic.cluster = Cluster(results=f"s3://{bucket}/results")
    assert clinic.findings()[f"object store s3://{bucket}/results"].is_good
    clinic.cluster = Cluster(results="s3://absent/results")
    gap = clinic.the_gap()
    assert gap.what == "object store s3://absent/results"
    assert "The specified bucket does not exist" in gap.gap

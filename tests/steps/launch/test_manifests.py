"""What is launched, as an operator's cluster admits it."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from lingraft.config.cluster import Cluster, Profile, Toleration
from lingraft.config.recipe import Recipe
from lingraft.steps.launch.handover import Handover
from lingraft.steps.launch.pods import LABEL, STEP
from lingraft.steps.launch.workload import job
from tests.manifests.policy import pod_violations
from tests.steps.launch import small_steps
from tests.workshop import TINY

PROFILE = Profile(
    accelerator="nvidia.com/gpu",
    accelerator_count=2,
    shared_memory="1Gi",
    ephemeral_storage="20Gi",
    node_selector={"pool": "gpu"},
    tolerations=(Toleration(key="nvidia.com/gpu"),),
    priority_class="lingraft-training",
    spot=True,
    time_limit_s=3600,
)


@pytest.fixture
def launched(tmp_path: Path) -> dict[str, Any]:
    handover = Handover(tmp_path, small_steps.Waits(recipe=Recipe.load(TINY)), None)
    metadata = {"name": "one", "labels": {LABEL: handover.key, **STEP}, "annotations": {"lingraft.io/attempt": "1"}}
    cluster = Cluster(storage_secret="bucket", service_account="trainer")
    return job(metadata, cluster, PROFILE, handover.attempt())


@pytest.mark.parametrize("version", ["1.31", "1.34"])
def test_a_job_passes_the_strict_schema(launched: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(launched, version, strict=True)


def test_its_pod_keeps_the_policy(launched: dict[str, Any]) -> None:
    assert list(pod_violations(launched["spec"]["template"]["spec"], served=False)) == []


def test_all_of_a_profile_reaches_the_pod(launched: dict[str, Any]) -> None:
    pod = launched["spec"]["template"]["spec"]
    [container] = pod["containers"]
    asked = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "20Gi", "nvidia.com/gpu": "2"}
    assert container["resources"] == {"requests": asked, "limits": asked}
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert pod["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert (pod["priorityClassName"], pod["serviceAccountName"]) == ("lingraft-training", "trainer")
    assert {volume["name"]: volume.get("emptyDir") for volume in pod["volumes"]} == {
        "data": None,
        "tmp": {"sizeLimit": "20Gi"},
        "shm": {"medium": "Memory", "sizeLimit": "1Gi"},
    }
    assert launched["spec"]["activeDeadlineSeconds"] == 3600


def test_the_keys_of_object_storage_come_from_its_secret(launched: dict[str, Any]) -> None:
    [container] = launched["spec"]["template"]["spec"]["containers"]
    [key] = [each for each in container["env"] if each["name"] == "AWS_SECRET_ACCESS_KEY"]
    assert key["valueFrom"]["secretKeyRef"]["name"] == "bucket"

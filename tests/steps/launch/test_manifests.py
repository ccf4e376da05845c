"""What is launched, as an operator's cluster and the trainer admit it."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob

from lingraft.config.cluster import Cluster, Profile, Toleration
from lingraft.config.recipe import Recipe
from lingraft.steps.launch.handover import Handover
from lingraft.steps.launch.pods import LABEL, STEP, UNDISTURBED
from lingraft.steps.launch.workload import MANIFESTS
from tests.manifests.policy import pod_violations
from tests.steps.launch import small_steps
from tests.workshop import TINY

PROFILE = Profile(
    accelerator="nvidia.com/gpu",
    accelerator_count=4,
    shared_memory="1Gi",
    ephemeral_storage="20Gi",
    node_selector={"pool": "gpu"},
    tolerations=(Toleration(key="nvidia.com/gpu"),),
    priority_class="lingraft-training",
    spot=True,
    time_limit_s=3600,
)
ASKED = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "20Gi", "nvidia.com/gpu": "4"}


def launched(kind: str, profile: Profile, folder: Path) -> dict[str, Any]:
    handover = Handover(folder, small_steps.Waits(recipe=Recipe.load(TINY)), None)
    metadata = {"name": "one", "labels": {LABEL: handover.key, **STEP}, "annotations": {"lingraft.io/attempt": "1"}}
    cluster = Cluster(storage_secret="bucket", hub_secret="hub", service_account="trainer")
    return MANIFESTS[kind](metadata, cluster, profile, handover.attempt())


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    return launched("Job", PROFILE, tmp_path)


@pytest.fixture
def train_job(tmp_path: Path) -> dict[str, Any]:
    return launched("TrainJob", PROFILE.model_copy(update={"nodes": 2, "priority_class": None}), tmp_path)


def test_a_job_passes_the_strict_schema_and_its_pod_the_policy(job: dict[str, Any]) -> None:
    kubernetes_validate.validate(job, "1.31", strict=True)
    assert list(pod_violations(job["spec"]["template"]["spec"], served=False)) == []


def test_istio_adds_no_sidecar_which_would_keep_a_job_from_ending(job: dict[str, Any]) -> None:
    assert job["spec"]["template"]["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"


@pytest.mark.parametrize("spot", [False, True])
def test_autoscalers_leave_a_pod_alone_unless_it_may_be_interrupted_cheaply(spot: bool, tmp_path: Path) -> None:
    profile = PROFILE.model_copy(update={"spot": spot, "priority_class": None})
    job = launched("Job", profile, tmp_path / "job")
    train_job = launched("TrainJob", profile.model_copy(update={"nodes": 2}), tmp_path / "train-job")
    [patch] = train_job["spec"]["runtimePatches"]
    [of_nodes] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    for template in (job["spec"]["template"], of_nodes["template"]["spec"]["template"]):
        assert template["metadata"]["annotations"] == ({} if spot else UNDISTURBED)


def test_a_train_job_has_only_fields_that_the_trainer_knows(train_job: dict[str, Any]) -> None:
    read = TrainerV1alpha1TrainJob.from_dict(train_job)
    assert read is not None
    assert read.to_dict() == train_job


def test_all_of_a_profile_reaches_the_pods(job: dict[str, Any], train_job: dict[str, Any]) -> None:
    [patch] = train_job["spec"]["runtimePatches"]
    [of_nodes] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    for pod in (job["spec"]["template"]["spec"], of_nodes["template"]["spec"]["template"]["spec"]):
        assert pod["nodeSelector"] == {"pool": "gpu"}
        assert pod["tolerations"][0]["key"] == "nvidia.com/gpu"
        assert pod["serviceAccountName"] == "trainer"
        assert pod["securityContext"]["runAsNonRoot"]
        assert {volume["name"]: volume.get("emptyDir") for volume in pod["volumes"]} == {
            "data": None,
            "tmp": {"sizeLimit": "20Gi"},
            "shm": {"medium": "Memory", "sizeLimit": "1Gi"},
        }
    for workload in (job, train_job):
        assert workload["spec"]["activeDeadlineSeconds"] == 3600
    assert job["spec"]["template"]["spec"]["priorityClassName"] == "lingraft-training"
    [container] = job["spec"]["template"]["spec"]["containers"]
    trainer = train_job["spec"]["trainer"]
    assert container["resources"] == trainer["resourcesPerNode"] == {"requests": ASKED, "limits": ASKED}
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 4)
    for environment in (container["env"], trainer["env"]):
        keys = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in environment if "valueFrom" in each}
        assert keys["AWS_SECRET_ACCESS_KEY"]["name"] == "bucket"
        assert keys["HF_TOKEN"] == {"name": "hub", "key": "HF_TOKEN", "optional": False}

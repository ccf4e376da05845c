"""What the doctor finds in a cluster, and says about each gap."""

import base64
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lingraft.cluster import Cluster, Profile
from lingraft.config import Recipe
from lingraft.doctor import Doctor, Finding
from lingraft.launch.on_cluster import connect
from tests.launch.api_server import ApiServer

TINY = Recipe.load(Path(__file__).parents[1] / "tiny.toml")
GPU = Profile(
    accelerator="nvidia.com/gpu", accelerator_count=4, nodes=2, shared_memory="1Gi", node_selector={"pool": "gpu"}
)
CLUSTER = Cluster(stages={"pretraining": GPU, "adaptation": Profile(priority_class="lingraft-training")})
RECIPE = TINY.model_copy(update={"cluster": CLUSTER})


@dataclass
class Clinic:
    """A cluster that has all that the recipe asks for, until a test takes something away."""

    server: ApiServer

    def findings(self) -> dict[str, Finding]:
        """By what was looked at."""
        api, namespace = connect()
        return {each.what: each for each in Doctor(api, namespace, RECIPE).findings()}

    def the_gap(self) -> Finding:
        """The only one."""
        (gap,) = (each for each in self.findings().values() if not each.is_good)
        return gap

    def add(self, plural: str, name: str, **more: Any) -> None:
        """Put an object there."""
        self.server.put(plural, {"metadata": {"name": name}, **more})


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clinic]:
    server = ApiServer()
    made = Clinic(server)
    made.add("namespaces", "lingraft")
    kinds = ("workflows.argoproj.io", "inferenceservices.serving.kserve.io", "trainjobs.trainer.kubeflow.org")
    for kind in kinds:
        names = {"kind": "X", "plural": "xs"}
        made.add("customresourcedefinitions", kind, spec={"group": "x", "names": names, "scope": "x", "versions": []})
    made.add("clustertrainingruntimes", "lingraft-torch")
    claim = {"accessModes": ["ReadWriteMany"], "storageClassName": "shared"}
    made.add("persistentvolumeclaims", "lingraft-data", spec=claim, status={"phase": "Bound"})
    made.add("storageclasses", "shared", provisioner="x")
    made.add("secrets", "lingraft-mlflow", data={"MLFLOW_TRACKING_URI": base64.b64encode(b"http://mlflow").decode()})
    room = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8"}
    server.put("nodes", {"metadata": {"name": "one", "labels": {"pool": "gpu"}}, "status": {"allocatable": room}})
    made.add("priorityclasses", "lingraft-training", value=1000)
    pod = {"selector": {}, "template": {}}
    made.add("deployments", "mlflow", spec=pod, status={"availableReplicas": 1})
    with server.serving(tmp_path) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield made


def test_a_cluster_that_has_everything_is_well(clinic: Clinic) -> None:
    assert [each for each in clinic.findings().values() if not each.is_good] == []


@pytest.mark.parametrize(
    ("plural", "name", "remedy"),
    [
        ("namespaces", "lingraft", "kubectl apply -k"),
        ("customresourcedefinitions", "trainjobs.trainer.kubeflow.org", "Install Kubeflow Trainer"),
        ("clustertrainingruntimes", "lingraft-torch", "cluster.runtime of the recipe"),
        ("persistentvolumeclaims", "lingraft-data", "cluster.storage_claim of the recipe"),
        ("secrets", "lingraft-mlflow", "create secret generic lingraft-mlflow"),
        ("priorityclasses", "lingraft-training", "kubectl get priorityclasses"),
        ("deployments", "mlflow", "describe deployment mlflow"),
    ],
)
def test_what_is_not_there_is_named_with_what_to_do(clinic: Clinic, plural: str, name: str, remedy: str) -> None:
    clinic.server.remove(plural, name)
    gap = clinic.the_gap()
    assert gap.gap == "is not there"
    assert remedy in gap.remedy


def test_a_node_that_is_too_small_is_no_node(clinic: Clinic) -> None:
    clinic.server.objects["nodes", "one"]["status"]["allocatable"]["nvidia.com/gpu"] = "2"
    gap = clinic.the_gap()
    assert gap.what == "a node for profile 'pretraining'"
    assert "4 nvidia.com/gpu" in gap.gap


def test_a_secret_without_its_key_is_a_gap(clinic: Clinic) -> None:
    clinic.server.objects["secrets", "lingraft-mlflow"]["data"] = {"OTHER": "eA=="}
    assert clinic.the_gap().gap == "has no key MLFLOW_TRACKING_URI"


def test_a_claim_for_one_node_is_too_little_for_languages_side_by_side(clinic: Clinic) -> None:
    clinic.server.objects["persistentvolumeclaims", "lingraft-data"]["spec"]["accessModes"] = ["ReadWriteOnce"]
    assert "can be mounted on one node only" in clinic.the_gap().gap


def test_a_claim_without_its_storage_class_names_those_there_are(clinic: Clinic) -> None:
    clinic.server.objects["persistentvolumeclaims", "lingraft-data"]["status"]["phase"] = "Pending"
    assert "the cluster has ['shared']" in clinic.the_gap().gap


def test_rights_of_the_pipeline_are_looked_at(clinic: Clinic) -> None:
    clinic.server.allows = lambda asked: asked["resourceAttributes"]["verb"] != "delete"
    gap = clinic.the_gap()
    assert gap.gap == "it may not delete jobs"
    assert "launcher.yaml" in gap.remedy


def test_what_we_may_not_look_at_is_said(clinic: Clinic) -> None:
    clinic.server.refusals["GET", "secrets"] = "secrets is forbidden"
    assert "we may not look" in clinic.the_gap().gap


def test_a_replica_that_is_not_available_is_a_gap(clinic: Clinic) -> None:
    clinic.server.objects["deployments", "mlflow"]["status"] = {}
    assert clinic.the_gap().gap == "none of its replicas is available"


def test_the_command_lists_gaps_and_fails(clinic: Clinic, tmp_path: Path) -> None:
    clinic.server.remove("secrets", "lingraft-mlflow")
    recipe = str(Path(__file__).parents[1] / "tiny.toml")
    ran = subprocess.run(
        [sys.executable, "-m", "lingraft", "doctor", "--recipe", recipe], check=False, capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert "LACKING  Secret lingraft-mlflow: is not there" in ran.stdout
    assert "ok       namespace lingraft" in ran.stdout

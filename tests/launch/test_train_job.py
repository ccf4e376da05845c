"""A stage on two nodes as a TrainJob, whose nodes are real processes that train together."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingraft import ranks, reuse
from lingraft.artifact import Artifact, Kind
from lingraft.cluster import Cluster, Profile, Toleration
from lingraft.launch import launcher
from lingraft.launch.calls import Call
from lingraft.launch.exchange import Exchange
from lingraft.launch.workload import train_job
from lingraft.steps import data
from tests.launch.api_server import ApiServer
from tests.launch.node import Node
from tests.tracking_stores import quiet, sqlite_store
from tests.workshop import Workshop

pytestmark = [quiet, pytest.mark.integration]
PROFILE = Profile(
    accelerator="nvidia.com/gpu",
    accelerator_count=4,
    nodes=2,
    memory="64Gi",
    shared_memory="8Gi",
    ephemeral_storage="20Gi",
    node_selector={"pool": "gpu"},
    tolerations=(Toleration(key="nvidia.com/gpu"),),
    time_limit_s=3600,
)


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    return Exchange(tmp_path / "launched", Call(step="source.pretrain", arguments={}), {}, {})


def test_a_profile_reaches_every_node_of_a_train_job(exchange: Exchange) -> None:
    made = train_job("name", Cluster(), PROFILE, exchange)
    trainer = made["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 4)
    assert trainer["resourcesPerNode"]["limits"] == {
        "cpu": "2",
        "memory": "64Gi",
        "ephemeral-storage": "20Gi",
        "nvidia.com/gpu": "4",
    }
    [patch] = made["spec"]["runtimePatches"]
    [job] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert pod["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert {volume["name"] for volume in pod["volumes"]} == {"data", "tmp", "shm"}
    assert pod["securityContext"]["runAsNonRoot"]
    assert made["spec"]["activeDeadlineSeconds"] == 3600


def test_a_train_job_has_only_fields_that_the_trainer_knows(exchange: Exchange) -> None:
    from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob

    made = train_job("name", Cluster(), PROFILE, exchange)
    read = TrainerV1alpha1TrainJob.from_dict(made)
    assert read is not None
    assert read.to_dict() == made


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    server = ApiServer()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("TESTS_MASTER_PORT", str(probe.getsockname()[1]))
    with server.serving(tmp_path) as path, sqlite_store(tmp_path) as uri:
        monkeypatch.setenv("KUBECONFIG", str(path))
        node = Node(server, {"MLFLOW_TRACKING_URI": uri})
        node.join()
        yield server
        node.close()


def test_two_nodes_learn_what_one_process_learns(
    workshop: Workshop, kubeconfig: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = tmp_path / "claim"
    cluster = Cluster(storage_path=str(claim), stages={"pretraining": Profile(nodes=2)})
    recipe = workshop.recipe.model_copy(update={"cluster": cluster})
    data.open_run(recipe.to_json(), "source", tmp_path / "run")
    monkeypatch.setenv(launcher.STAGE, "pretraining")
    monkeypatch.setenv(reuse.WHERE, str(claim / "results"))
    inputs = {"blocks_folder": workshop.blocks["en"], "tokenizer_folder": workshop.tokenizers["en"]}
    folders = {name: str(folder) for name, folder in inputs.items()} | {"run": str(tmp_path / "run")}
    made = launcher.run("source.pretrain", folders, {"out": str(tmp_path / "out")}, recipe=recipe.to_json())
    assert made["steps"] == recipe.pretraining.steps
    found = Artifact.load(tmp_path / "out", Kind.PRIMARY)
    assert found.manifest.details["processes"] == 2
    body, expected = found.tensors("body"), Artifact.load(workshop.primary, Kind.PRIMARY).tensors("body")
    for name, tensor in expected.items():
        assert (body[name] - tensor).abs().max() < 1e-4
    assert [plural for plural, _ in kubeconfig.objects if plural == "trainjobs"] == ["trainjobs"]
    assert ranks.SHARED not in os.environ

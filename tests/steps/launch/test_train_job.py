"""A stage on two nodes as a TrainJob, whose nodes are real processes that train together."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lingraft import ranks
from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.config.cluster import Cluster, Profile, Toleration
from lingraft.config.recipe import Recipe
from lingraft.steps.launch.calls import LaunchError
from lingraft.steps.launch.handover import Handover
from lingraft.steps.launch.pods import STEP
from lingraft.steps.launch.workload import train_job
from tests.steps.launch import small_steps
from tests.steps.launch.bench import LONG, SHORT, Bench, a_bench, launched
from tests.tracking_stores import quiet
from tests.workshop import TINY, Workshop, changed

pytestmark = quiet
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
def made(tmp_path: Path) -> dict[str, Any]:
    handover = Handover(tmp_path / "launched", small_steps.Waits(recipe=Recipe.load(TINY)), None)
    metadata = {"name": "name", "labels": dict(STEP), "annotations": {"lingraft.io/attempt": "1"}}
    return train_job(metadata, Cluster(service_account="trainer"), PROFILE, handover.attempt())


def test_a_profile_reaches_every_node_of_a_train_job(made: dict[str, Any]) -> None:
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
    assert pod["serviceAccountName"] == "trainer"
    assert made["spec"]["activeDeadlineSeconds"] == 3600


def test_a_train_job_has_only_fields_that_the_trainer_knows(made: dict[str, Any]) -> None:
    from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob

    read = TrainerV1alpha1TrainJob.from_dict(made)
    assert read is not None
    assert read.to_dict() == made


@pytest.fixture
def bench(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with a_bench(workshop, tmp_path, monkeypatch, Profile(nodes=2, memory="3Gi", retries=2)) as made:
        yield made


@pytest.mark.integration
def test_two_nodes_learn_what_one_process_learns(bench: Bench, workshop: Workshop) -> None:
    bench.recipe = workshop.recipe.model_copy(update={"cluster": bench.recipe.cluster})
    bench.server.faults["POST", "trainjobs"] = [503]
    assert bench.run(pause_s=0.0)["steps"] == workshop.recipe.pretraining.steps
    found = Artifact.load(bench.folder / "out", Kind.PRIMARY)
    assert found.manifest.record["processes"] == 2
    body, expected = found.tensors("body"), Artifact.load(workshop.primary, Kind.PRIMARY).tensors("body")
    for name, tensor in expected.items():
        assert (body[name] - tensor).abs().max() < 1e-4
    assert len(bench.jobs()) == 1
    assert ranks.NODES_FOLDER_VARIABLE not in os.environ


@pytest.mark.integration
@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.nightly), 1])
def test_a_node_that_is_lost_is_replaced_and_training_goes_on(
    bench: Bench, number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.lasts()
    bench.when(bench.trains, lambda pod: bench.node.vanish(f"{pod[:-1]}{number}"))
    assert bench.run(pause_s=0.0)["steps"] == LONG["steps"]
    assert [name[-2:] for name in bench.jobs()] == ["-1", "-2"]
    said = capfd.readouterr()
    assert "attempt 2 of 3" in said.err
    assert "going on after step" in said.out


@pytest.mark.integration
def test_a_node_that_takes_too_much_memory_is_not_tried_again(bench: Bench) -> None:
    bench.lasts()
    bench.when(bench.trains, bench.node.kill_for_memory)
    with pytest.raises(LaunchError, match=r"out of memory \(3Gi\)"):
        bench.run(pause_s=0.0)
    assert len(bench.jobs()) == 1


@pytest.mark.integration
def test_an_error_of_the_training_is_its_launchers(bench: Bench) -> None:
    bench.recipe = changed(bench.recipe, "pretraining", learning_rate=1e30)
    with pytest.raises(LaunchError, match="finite"):
        bench.run(pause_s=0.0)
    assert len(bench.jobs()) == 1


@pytest.mark.integration
def test_a_training_that_is_cancelled_ends_on_all_nodes_and_keeps_where_it_is(bench: Bench) -> None:
    bench.lasts(steps=10_000)
    with launched(bench) as its_launcher:
        its_launcher.wait_until(bench.trains)
        its_launcher.send(signal.SIGTERM)
        assert its_launcher.ends() == 75
    assert [process.wait(60) for process in bench.node.processes.values()] == [75, 75]
    assert bench.jobs() == []
    assert bench.steps_kept() > 20


@pytest.mark.integration
def test_a_quota_without_room_is_waited_for(bench: Bench) -> None:
    bench.server.refusals["POST", "trainjobs"] = "trainjobs is forbidden: exceeded quota: gpus"

    def free() -> None:
        while ("POST", "trainjobs") not in bench.server.asked:
            time.sleep(0.01)
        bench.server.refusals.clear()

    threading.Thread(target=free, daemon=True).start()
    assert bench.run(pause_s=0.1)["steps"] == SHORT["steps"]

"""Steps as Jobs and TrainJobs of a cluster whose pods are real processes: killed, stopped, refused and found again."""

import datetime
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from lingraft import ranks
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.cluster import Profile
from lingraft.steps.launch import on_cluster
from lingraft.steps.launch.calls import LaunchError
from lingraft.steps.launch.workload import WorkloadPhase, WorkloadState
from tests.steps.launch.api_server import DROP
from tests.steps.launch.bench import KEPT, LONG, SHORT, Bench, a_bench, launched
from tests.tracking_stores import quiet
from tests.workshop import Workshop

pytestmark = [quiet, pytest.mark.integration]


PROFILES = {
    "job": Profile(spot=True, memory="3Gi", retries=2),
    "train job": Profile(nodes=2, memory="3Gi", retries=2),
}


@pytest.fixture
def bench(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Bench]:
    profile = PROFILES[getattr(request, "param", "job")]
    with a_bench(workshop, tmp_path, monkeypatch, profile) as made:
        yield made


def test_a_step_runs_as_a_job_and_its_log_and_result_come_back(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    made = bench.run()
    assert made["steps"] == SHORT["steps"]
    assert Artifact.load(bench.folder / "out", Kind.PRIMARY)
    [job] = [bench.server.objects["jobs", name] for name in bench.jobs()]
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "3Gi"}
    assert job["spec"]["backoffLimit"] == 0
    said = capfd.readouterr()
    assert "pretrain en: step 6/6" in said.out
    assert "was launched in namespace lingraft" in said.err
    assert [*(bench.folder / "claim/launched/calls").iterdir()] == []


@pytest.mark.parametrize("bench", ["train job"], indirect=True)
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


@pytest.mark.parametrize(
    ("bench", "node", "told"),
    [
        pytest.param("job", 0, True, id="the node says so"),
        pytest.param("job", 0, False, id="the pod is just gone"),
        pytest.param("train job", 1, True, id="the second of two"),
    ],
    indirect=["bench"],
)
def test_a_lost_node_is_replaced_and_the_step_goes_on(
    bench: Bench, node: int, told: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.lasts()
    bench.when(bench.trains, lambda pod: bench.node.vanish(f"{pod[:-1]}{node}", told))
    assert bench.run(pause_s=0.0)["steps"] == LONG["steps"]
    assert [name[-2:] for name in bench.jobs()] == ["-1", "-2"]
    said = capfd.readouterr()
    assert "attempt 2 of 3" in said.err
    assert "going on after step" in said.out


def test_nodes_that_are_lost_too_often_are_a_failure_with_its_reason(bench: Bench) -> None:
    def lose_all(pod: str) -> None:
        bench.node.vanish(pod)
        bench.when(lambda: [*bench.node.processes][-1] != pod, lose_all)

    bench.lasts()
    bench.when(lambda: bool(bench.node.processes), lose_all)
    with pytest.raises(LaunchError, match=r"lost its node .*\(attempt 3 of 3\)"):
        bench.run()


def test_a_step_that_takes_too_much_memory_is_not_tried_again(bench: Bench) -> None:
    bench.lasts()
    bench.when(bench.trains, bench.node.kill_for_memory)
    with pytest.raises(LaunchError, match=r"out of memory \(3Gi\)"):
        bench.run(pause_s=0.0)
    assert len(bench.jobs()) == 1


def test_the_api_server_may_fail_meanwhile(bench: Bench) -> None:
    bench.lasts()
    bench.server.faults["GET", "pods"] = [DROP, 500]

    def fail(_: str) -> None:
        bench.server.faults["GET", "jobs"] = [500, DROP, 410, 429]

    bench.when(bench.trains, fail)
    assert bench.run()["steps"] == LONG["steps"]
    assert len(bench.jobs()) == 1


def test_a_creation_whose_answer_was_lost_is_found_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from lingraft.steps.launch.workload import Workloads

    real = Workloads.create

    def twice(self: Workloads, manifest: dict[str, Any]) -> dict[str, Any]:
        real(self, manifest)
        return real(self, manifest)

    monkeypatch.setattr(Workloads, "create", twice)
    assert bench.run()["steps"] == SHORT["steps"]
    assert len(bench.jobs()) == 1


def test_a_quota_without_room_is_waited_for(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    request = ("POST", bench.plural)
    bench.server.refusals[request] = 'jobs "x" is forbidden: exceeded quota: gpus, requested: 1, used: 8'

    def free() -> None:
        while request not in bench.server.asked:
            time.sleep(0.01)
        bench.server.refusals.clear()

    threading.Thread(target=free, daemon=True).start()
    assert bench.run(pause_s=0.1)["steps"] == SHORT["steps"]
    assert "exceeded quota" in capfd.readouterr().err


def test_a_missing_right_is_named_and_not_waited_for(bench: Bench) -> None:
    bench.server.refusals["POST", "jobs"] = 'User "pipeline" cannot create resource "jobs"'
    with pytest.raises(LaunchError, match=r"Kubernetes refuses: 403 .*cannot create resource"):
        bench.run()


def test_a_job_that_somebody_deletes_is_a_failure(bench: Bench) -> None:
    bench.lasts()
    bench.when(bench.trains, lambda _: bench.server.remove("jobs", bench.jobs()[-1]))
    with pytest.raises(LaunchError, match="was deleted by somebody"):
        bench.run()


def test_a_launcher_that_is_lost_is_replaced_by_one_that_finds_the_job(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.lasts()
    with launched(bench) as first:
        first.wait_until(bench.trains)
    assert bench.run()["steps"] == LONG["steps"]
    assert len(bench.jobs()) == 1
    assert "is there already, and is followed" in capfd.readouterr().err


def test_a_step_that_is_cancelled_ends_its_job_which_keeps_where_it_is(bench: Bench) -> None:
    bench.lasts(steps=10_000)
    with launched(bench) as its_launcher:
        its_launcher.wait_until(bench.trains)
        its_launcher.send(signal.SIGTERM)
        assert its_launcher.ends() == 75
    assert {pod.wait(60) for pod in bench.node.processes.values()} == {75}
    assert bench.jobs() == []
    assert bench.steps_kept() > KEPT


def test_of_pods_that_fail_within_the_same_second_the_one_that_nobody_killed_tells_why() -> None:
    second = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def pod(code: int) -> client.V1Pod:
        ended = client.V1ContainerStateTerminated(exit_code=code, finished_at=second)
        state = client.V1ContainerState(terminated=ended)
        status = client.V1ContainerStatus(
            name="node", image="x", image_id="x", ready=False, restart_count=0, state=state
        )
        return client.V1Pod(status=client.V1PodStatus(phase="Failed", container_statuses=[status]))

    failed = WorkloadState(WorkloadPhase.FAILED, "JobsFailed", "")
    ended = on_cluster._classify_exit("job", failed, [pod(143), pod(1)], "4Gi")
    assert (ended.vanished, "exit code 1)" in str(ended.failed)) == (None, True)

"""What keeps a launched step from starting or ending, or us from following it, is told with what to do."""

from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from lingraft.config.cluster import Profile
from lingraft.config.recipe import Recipe
from lingraft.steps import data
from lingraft.steps.launch import health, on_cluster
from lingraft.steps.launch.calls import AttemptResult, StepAnswer
from lingraft.tracking.runs import tags_of_run
from tests.steps.launch.api_kinds import now
from tests.steps.launch.api_server import ApiServer
from tests.steps.launch.launchers import RESULT, WAITING, Launcher, names, put_pod, succeed
from tests.tracking_stores import quiet, sqlite_store
from tests.training.distributed.project import wait_for
from tests.workshop import TINY

SPOT = Profile(spot=True)
DONE = AttemptResult(StepAnswer(result=RESULT))


def the_job(server: ApiServer, followed: list[str]) -> str:
    """Name of the only Job, as soon as it is followed."""
    wait_for(lambda: bool(followed))
    [name] = names(server, "jobs")
    return name


def test_a_token_that_has_expired_is_read_again(server: ApiServer, followed: list[str], tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, SPOT)
    name = the_job(server, followed)
    server.tokens = {"second"}
    asked = len(server.asked)
    (tmp_path / "token").write_text("second", encoding="utf-8")
    wait_for(lambda: len(server.asked) > asked)
    succeed(server, launcher, "jobs", name)
    assert launcher.waits() == DONE
    assert names(server, "jobs") == [name]


def test_a_token_that_nobody_replaces_ends_the_launcher_and_not_the_job(
    server: ApiServer, followed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_cluster, "_TOKEN_LIFE_S", 1)
    launcher = Launcher(tmp_path, SPOT)
    name = the_job(server, followed)
    server.tokens = {"second"}
    ended = launcher.waits()
    assert f"{name} goes on" in str(ended.failed)
    assert f"kubectl -n lingraft logs --follow --selector batch.kubernetes.io/job-name={name}" in str(ended.failed)
    assert names(server, "jobs") == [name]


NO_SECRET = {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/9 nodes have room"}


def test_a_job_whose_pods_are_refused_is_deleted_in_time_and_its_error_names_the_cause(
    server: ApiServer, followed: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(plural: str, made: dict[str, Any]) -> None:
        name = made["metadata"]["name"]
        for pod in ("x7k2p", "q9r4s") if plural == "jobs" else ():
            server.warn(name, "FailedCreate", f'pods "{name}-{pod}" is forbidden: exceeded quota: lingraft')
            server.warn(f"{name}-{pod}", "FailedMount", "no claim", kind="Pod")

    server.created = refuse
    ended = Launcher(tmp_path, Profile(spot=True, start_limit_s=1)).waits()
    [name] = followed
    assert f"{name} did not start within 1 s, and was deleted: " in str(ended.failed)
    assert 'q9r4s" is forbidden: exceeded quota: lingraft' in str(ended.failed)  # the newest
    assert "start_limit_s" in str(ended.failed)
    assert names(server, "jobs") == []
    told = capfd.readouterr().err
    assert (told.count("FailedCreate"), told.count("FailedMount")) == (1, 1)


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ({"containerStatuses": [WAITING]}, "ImagePullBackOff: no image x"),
        ({"containerStatuses": [WAITING | {"state": {"waiting": NO_SECRET}}]}, 'ConfigError: secret "x" not found'),
        ({"conditions": [UNSCHEDULED]}, "Unschedulable: 0/9 nodes have room"),
    ],
    ids=["no image", "no Secret", "no node"],
)
def test_a_pod_that_waits_is_deleted_in_time_and_its_error_names_the_cause(
    server: ApiServer, status: dict[str, Any], cause: str
) -> None:
    put_pod(server, "job", {"phase": "Pending"} | status)
    pods = client.CoreV1Api(on_cluster.connect()[0]).list_namespaced_pod("lingraft").items
    check = health.HealthCheck("job", nodes=1, start_limit_s=0, tracking_run=None)
    assert cause in str(check.check(is_suspended=False, pods=pods, warnings={}))


def test_time_in_a_queue_does_not_count(
    server: ApiServer, followed: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def suspend(plural: str, made: dict[str, Any]) -> None:
        if plural == "jobs":  # as Kueue's webhook does
            made["spec"]["suspend"] = "kueue.x-k8s.io/queue-name" in made["metadata"]["labels"]

    server.created = suspend
    launcher = Launcher(tmp_path, Profile(spot=True, start_limit_s=1), queue="research")
    name = the_job(server, followed)
    launcher._thread.join(1.2)
    assert launcher.ended == []
    succeed(server, launcher, "jobs", name)
    assert launcher.waits() == DONE
    assert capfd.readouterr().err.count("is suspended, and starts when its queue admits it") == 1


@quiet
def test_a_node_that_does_not_answer_is_told_in_log_and_tracking_run_until_it_does(
    server: ApiServer, followed: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with sqlite_store(tmp_path):
        data.open_run(Recipe.load(TINY).to_json(), "source", run)
        launcher = Launcher(tmp_path, SPOT, run)
        name = the_job(server, followed)
        evicted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "taint"}
        status = {"phase": "Running", "conditions": [evicted]}
        pod = put_pod(server, name, status, deletionTimestamp=now(-3600), deletionGracePeriodSeconds=60)
        target = {"type": "FailureTarget", "status": "True", "reason": "PodFailurePolicy", "message": ""}
        server.put("jobs", server.objects["jobs", name] | {"status": {"conditions": [target]}})

        def note() -> str | None:
            return tags_of_run(run.read_text()).get(f"{health.NOTE_TAG}.{name}")

        wait_for(lambda: note() is not None)
        assert launcher.ended == []
        told = str(note())
        assert told.startswith(
            f"node node-7 does not answer: pod {pod} is Terminating (Running, DeletionByTaintManager"
        )
        assert "kubectl delete node node-7" in told
        assert "kubectl taint nodes node-7 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in told
        server.remove("pods", pod)  # as is done where the node was deleted
        wait_for(lambda: note() is None)
        server.end("jobs", name, "Failed", "BackoffLimitExceeded")
        assert "lost its node" in str(launcher.waits().vanished)
    assert capfd.readouterr().err.count("node node-7 does not answer") == 1
    assert names(server, "jobs") == [name]

"""A Job that a launcher has left is found by the next one, whose Kubernetes lists say no kind of what is in them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingraft.config.cluster import Cluster, Profile
from lingraft.config.recipe import Recipe
from lingraft.steps.launch import on_cluster
from lingraft.steps.launch.calls import AttemptResult, StepAnswer
from lingraft.steps.launch.handover import Handover
from lingraft.steps.launch.on_cluster import ClusterLauncher
from lingraft.steps.launch.pods import Manifest
from lingraft.steps.launch.workload import WorkloadState
from tests.steps.launch import small_steps
from tests.steps.launch.api_server import ApiServer
from tests.training.distributed.project import wait_for
from tests.workshop import TINY

RESULT = {"steps": 7}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """A cluster without nodes, which kubectl is set to."""
    made = ApiServer()
    with made.serving(tmp_path) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield made


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the workloads that launchers have begun to follow, at a short interval."""
    found: list[str] = []

    follow = ClusterLauncher._final_state

    def watch(launcher: ClusterLauncher, workload: Manifest) -> WorkloadState:
        found.append(workload["metadata"]["name"])
        return follow(launcher, workload)

    monkeypatch.setattr(ClusterLauncher, "_final_state", watch)
    monkeypatch.setattr(on_cluster, "_POLL_S", 0.05)
    return found


class Launcher:
    """One that does a step, in a thread; others that do the same step are of the same folder."""

    def __init__(self, folder: Path, profile: Profile) -> None:
        cluster = Cluster(storage_path=str(folder), stages={"pretraining": profile})
        self.handover = Handover(folder, small_steps.Waits(recipe=Recipe.load(TINY)), None)
        self._launcher = ClusterLauncher(cluster, profile, self.handover)
        self.ended: list[AttemptResult] = []
        self._thread = threading.Thread(target=lambda: self.ended.append(self._launcher.attempt()), daemon=True)
        self._thread.start()

    def waits(self) -> None:
        self._thread.join()


def succeed(server: ApiServer, launcher: Launcher, plural: str, name: str) -> None:
    """End a workload well, as one whose step has left its answer."""
    job = server.objects[plural, name]
    attempt = launcher.handover.attempt(job["metadata"]["annotations"]["lingraft.io/attempt"])
    (attempt.folder / "answer.json").write_text(StepAnswer(result=RESULT).model_dump_json(), encoding="utf-8")
    server.end(plural, name, "Complete")


def names(server: ApiServer, plural: str) -> list[str]:
    return [name for kind, name in server.objects if kind == plural]


@pytest.mark.parametrize(
    ("profile", "plural", "kind"),
    [(Profile(spot=True), "jobs", "Job"), (Profile(nodes=2), "trainjobs", "TrainJob")],
    ids=["built in", "custom"],
)
def test_a_launcher_follows_what_another_has_left(
    server: ApiServer,
    followed: list[str],
    tmp_path: Path,
    profile: Profile,
    plural: str,
    kind: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    first = Launcher(tmp_path, profile)
    wait_for(lambda: len(followed) == 1)
    [name] = names(server, plural)
    second = Launcher(tmp_path, profile)
    wait_for(lambda: len(followed) == 2)
    succeed(server, second, plural, name)
    for launcher in (first, second):
        launcher.waits()
        assert launcher.ended == [AttemptResult(StepAnswer(result=RESULT))]
    assert names(server, plural) == [name]
    said = capfd.readouterr().err
    assert f"{kind} {name} was launched in namespace lingraft" in said
    assert f"{kind} {name} is there already, and is followed" in said


def test_a_job_that_is_being_deleted_is_not_followed(server: ApiServer, followed: list[str], tmp_path: Path) -> None:
    profile = Profile(spot=True)
    first = Launcher(tmp_path, profile)
    wait_for(lambda: len(followed) == 1)
    [old] = names(server, "jobs")
    server.delete("jobs", old, "Foreground")
    second = Launcher(tmp_path, profile)
    wait_for(lambda: len(names(server, "jobs")) == 2)
    [new] = {*names(server, "jobs")} - {old}
    assert (old[-2:], new[-2:]) == ("-1", "-2")
    succeed(server, second, "jobs", new)
    second.waits()
    assert second.ended == [AttemptResult(StepAnswer(result=RESULT))]
    server.remove("jobs", old)
    first.waits()

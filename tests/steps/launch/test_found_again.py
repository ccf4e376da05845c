"""A Job that a launcher has left is found by the next one, whose Kubernetes lists say no kind of what is in them."""

from pathlib import Path

import pytest

from lingraft.config.cluster import Profile
from lingraft.steps.launch.calls import AttemptResult, StepAnswer
from tests.steps.launch.api_kinds import now
from tests.steps.launch.api_server import ApiServer
from tests.steps.launch.launchers import RESULT, Launcher, names, succeed
from tests.training.distributed.project import wait_for


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
    first = Launcher(tmp_path, profile, queue="research")
    wait_for(lambda: len(followed) == 1)
    [name] = names(server, plural)
    assert server.objects[plural, name]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    second = Launcher(tmp_path, profile, queue="research")
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
    assert "kueue.x-k8s.io/queue-name" not in server.objects["jobs", old]["metadata"]["labels"]  # it has no queue
    server.objects["jobs", old]["metadata"]["deletionTimestamp"] = now()
    second = Launcher(tmp_path, profile)
    wait_for(lambda: len(names(server, "jobs")) == 2)
    [new] = {*names(server, "jobs")} - {old}
    assert (old[-2:], new[-2:]) == ("-1", "-2")
    succeed(server, second, "jobs", new)
    second.waits()
    assert second.ended == [AttemptResult(StepAnswer(result=RESULT))]
    server.remove("jobs", old)
    first.waits()

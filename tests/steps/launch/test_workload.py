"""How long launched workloads stay."""

from pathlib import Path

from lingraft.config.cluster import Profile
from lingraft.steps.launch.calls import AttemptResult, StepAnswer
from tests.steps.launch.api_kinds import now
from tests.steps.launch.api_server import ApiServer
from tests.steps.launch.launchers import RESULT, Launcher, names, succeed
from tests.training.distributed.project import wait_for


def test_train_jobs_that_ended_a_day_ago_are_deleted_by_the_next_launch(
    server: ApiServer, followed: list[str], tmp_path: Path
) -> None:
    def put(name: str, labels: dict[str, str], ended: str) -> None:
        condition = {"type": "Failed", "status": "True", "lastTransitionTime": ended, "reason": "", "message": ""}
        metadata = {"name": name, "labels": labels}
        server.put("trainjobs", {"metadata": metadata, "spec": {}, "status": {"conditions": [condition]}})

    put("lingraft-other-1", {"lingraft.io/call": "other"}, now(-90_000))
    put("lingraft-other-2", {"lingraft.io/call": "other"}, now(-80_000))
    put("of-somebody-else", {}, now(-90_000))
    launcher = Launcher(tmp_path, Profile(nodes=2))
    wait_for(lambda: bool(followed))
    assert {*names(server, "trainjobs")} == {"lingraft-other-2", "of-somebody-else", *followed}
    succeed(server, launcher, "trainjobs", followed[0])
    assert launcher.waits() == AttemptResult(StepAnswer(result=RESULT))

"""The log of a step and the cluster's warnings, and what is said where they cannot be read."""

import pytest

from lingraft.steps.launch import on_cluster
from lingraft.steps.launch.log_stream import LogStream
from lingraft.steps.launch.workload import JOB
from tests.steps.launch.api_server import ApiServer
from tests.steps.launch.launchers import WAITING, put_pod
from tests.training.distributed.project import wait_for

RUNNING = WAITING | {"state": {"running": {}}}


@pytest.mark.parametrize("is_refused", [False, True], ids=["the kubelet is silent", "a right is missing"])
def test_a_log_that_cannot_be_read_is_said_and_shown_later(
    server: ApiServer, capfd: pytest.CaptureFixture[str], is_refused: bool
) -> None:
    pod = put_pod(server, "job", {"phase": "Running", "containerStatuses": [RUNNING]})
    server.logs[pod] = ["step 6/6"]
    if is_refused:
        server.refusals["GET", "pods"] = 'User "we" cannot list resource "pods"'
    else:
        server.silent_kubelets[pod] = "dial tcp: i/o timeout"
    stream = LogStream(on_cluster.connect()[0], "lingraft", JOB, "job", every_s=0.01)
    told: list[str] = []
    wait_for(lambda: bool(told.append(capfd.readouterr().err) or "".join(told)))
    assert "the log of job cannot be read, and the step goes on. Asking again: " in "".join(told)
    assert ("cannot list" if is_refused else "i/o timeout") in "".join(told)
    server.refusals.clear()
    server.silent_kubelets.clear()
    server.end("jobs", "job", "Complete")
    put_pod(server, "job", {"phase": "Succeeded", "containerStatuses": [RUNNING]})
    stream.close()
    shown = capfd.readouterr()
    assert shown.out == "step 6/6\n"
    assert "cannot be read" not in shown.err

"""`lingraft deploy` against an API server: created, changed, followed until ready or hopeless, split, taken back."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingraft.deployment import rollout
from lingraft.deployment.rollout import Rollout
from lingraft.errors import DeploymentError
from lingraft.steps.launch.calls import LaunchError
from lingraft.steps.launch.on_cluster import connect
from tests.deployment.cluster import ADDRESS, PLURAL, Cluster, container_status, deploy, told
from tests.steps.launch.api_server import DROP

ONE, TWO, THREE = (f"models:/demo-bundle-topic/{number}" for number in (1, 2, 3))
KNATIVE = "--mode=Knative"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(rollout, "_POLL_S", 0.01)
    with Cluster.opened(tmp_path) as opened:
        yield opened


def version(cluster: Cluster) -> str:
    """Which bundle pods bring."""
    [pull] = cluster.predictor()["initContainers"]
    return str(pull["args"][2])


def test_a_service_is_created_changed_and_taken_back_and_no_further(cluster: Cluster) -> None:
    assert deploy(ONE) == f"lingraft is ready: {ADDRESS}\n"
    assert version(cluster) == "1"
    said, error = told(ONE)
    assert ("is as it should be" in said, error) == (True, None)
    assert ("PUT", PLURAL) not in cluster.server.asked
    deploy(TWO)
    assert version(cluster) == "2"
    # Notes are what was sent, and not what KServe made of it.
    assert cluster.predictor()["timeout"] == 60
    notes = cluster.service()["metadata"]["annotations"]
    assert "timeout" not in json.loads(notes[rollout.APPLIED])
    assert "timeout" not in json.loads(notes[rollout.PREVIOUS])
    deploy("--rollback")
    assert version(cluster) == "1"
    with pytest.raises(DeploymentError, match="nothing was deployed as lingraft before"):
        deploy("--rollback")
    cluster.containers = [container_status("pull", {"reason": "CrashLoopBackOff"}, exit_code=1)]
    assert isinstance(told(THREE)[1], DeploymentError)
    of_services = {("serving.kserve.io", "inferenceservices", verb) for verb in ("get", "create", "update")}
    assert cluster.server.used == of_services | {("", "pods", "list"), ("", "pods/log", "get")}


def test_a_canary_is_given_traffic_and_promoted(cluster: Cluster) -> None:
    deploy(ONE, KNATIVE)
    deploy(TWO, KNATIVE, "--canary=10")
    assert (version(cluster), cluster.predictor()["canaryTrafficPercent"]) == ("2", 10)
    canary = cluster.predictor()["annotations"][rollout.REVISION]
    deploy("--promote")
    assert version(cluster) == "2"
    assert "canaryTrafficPercent" not in cluster.predictor()
    assert cluster.predictor()["annotations"][rollout.REVISION] == canary  # so that it keeps its pods
    with pytest.raises(DeploymentError, match="no canary with traffic"):
        deploy("--promote")
    deploy("--rollback")
    assert version(cluster) == "1"
    assert cluster.predictor()["annotations"][rollout.REVISION] != canary


def test_a_canary_that_is_taken_back_has_no_traffic_and_the_next_one_does_not_forget_what_was_before(
    cluster: Cluster,
) -> None:
    deploy(ONE, KNATIVE)
    deploy(TWO, KNATIVE, "--canary=10")
    deploy("--rollback")
    assert cluster.predictor()["canaryTrafficPercent"] == 0  # KServe sends all to the revision before
    deploy(THREE, KNATIVE, "--canary=20")
    assert (version(cluster), cluster.predictor()["canaryTrafficPercent"]) == ("3", 20)
    deploy("--rollback")
    deploy("--rollback")
    assert version(cluster) == "1"
    assert "canaryTrafficPercent" not in cluster.predictor()


@pytest.mark.parametrize(
    ("status", "said", "reason"),
    [
        (
            container_status("pull-demo-bundle-topic", {"reason": "CrashLoopBackOff"}, exit_code=1),
            "error: version 7 of 'demo-bundle-topic' is not there",
            r"pull-demo-bundle-topic of pod lingraft-predictor-1: CrashLoopBackOff exit 1.*\n.*is not there",
        ),
        (
            container_status("kserve-container", {"reason": "ImagePullBackOff", "message": "no such image"}),
            "",
            "kserve-container of pod lingraft-predictor-1: ImagePullBackOff no such image",
        ),
    ],
    ids=["crashes", "no image"],
)
def test_what_time_does_not_mend_ends_the_wait_with_the_reason(
    cluster: Cluster, status: dict[str, object], said: str, reason: str
) -> None:
    cluster.containers = [status]
    cluster.server.logs["lingraft-predictor-1"] = [said] if said else []
    with pytest.raises(DeploymentError, match=reason):
        deploy(ONE)


def test_what_may_mend_is_told_once_and_waited_for_until_the_time_is_over(cluster: Cluster) -> None:
    cluster.unscheduled = "0/9 nodes are available"
    said, error = told(ONE, "--wait=0.2")
    assert isinstance(error, DeploymentError)
    assert "not ready after 0.2 s: Ready PredictorNotReady no pod is ready" in str(error)
    assert said.count("lingraft: 0/9 nodes are available") == 1


@pytest.mark.parametrize("ahead", [40, -1])
def test_readiness_from_before_the_change_does_not_count(cluster: Cluster, ahead: int) -> None:
    """KServe's observedGeneration is that of the Deployment, which may be ahead of ours or behind."""
    cluster.child_generations = ahead
    deploy(ONE)
    cluster.is_slow = True
    with pytest.raises(DeploymentError, match="not ready after"):
        deploy(TWO, "--wait=0.1")
    threading.Timer(0.05, cluster.settle).start()
    assert ADDRESS in deploy(TWO)


def test_a_deployment_that_is_mended_is_not_given_up_for_the_old_pod(cluster: Cluster) -> None:
    cluster.containers = [container_status("pull", {"reason": "CrashLoopBackOff"}, exit_code=1)]
    assert isinstance(told(ONE)[1], DeploymentError)
    cluster.containers, cluster.is_slow = [], True

    def settle() -> None:
        while cluster.generation < 2:  # or the settled status would be a change between deploy's reading and replacing
            time.sleep(0.01)
        time.sleep(0.05)
        cluster.settle()

    settling = threading.Thread(target=settle)
    settling.start()
    assert ADDRESS in deploy(TWO)
    settling.join()


def test_the_api_server_may_fail_meanwhile(cluster: Cluster) -> None:
    deploy(ONE)
    cluster.is_slow = True
    deploy(TWO, "--wait=0")
    cluster.settle()
    cluster.server.faults["GET", PLURAL] = [DROP, 503]
    cluster.server.faults["GET", "pods"] = [500]
    assert Rollout(*connect(), "lingraft").until_ready(60) == ADDRESS
    assert not any(cluster.server.faults.values())


def test_of_two_changes_at_once_one_is_refused(cluster: Cluster) -> None:
    deploy(ONE)
    cluster.server.faults["PUT", PLURAL] = [409]
    with pytest.raises(DeploymentError, match="409"):
        deploy(TWO)


def test_a_missing_right_is_named(cluster: Cluster) -> None:
    cluster.server.refusals["POST", PLURAL] = 'User "we" cannot create resource "inferenceservices"'
    with pytest.raises(DeploymentError, match="cannot create resource"):
        deploy(ONE)


@pytest.mark.parametrize("arguments", [(), ("--promote", "--rollback"), (ONE, "--promote")])
def test_one_thing_is_done_at_a_time(arguments: tuple[str, ...]) -> None:
    with pytest.raises(DeploymentError, match="name bundles"):
        deploy(*arguments)


def test_without_a_cluster_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    with pytest.raises(LaunchError, match="there is no cluster"):
        deploy(ONE)

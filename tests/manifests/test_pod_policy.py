"""No container runs with more rights than it needs, or without a bound on what it takes."""

from typing import Any

from tests.manifests.conftest import labels_of, pod_of
from tests.manifests.policy import pod_violations

Document = dict[str, Any]


def test_every_pod_keeps_the_policy(pods: dict[str, Document]) -> None:
    assert len(pods) >= 2
    for name, pod in pods.items():
        ends = name.startswith(("ClusterTrainingRuntime/", "Job/", "CronJob/"))
        assert not list(pod_violations(pod, served=not ends)), name


def test_istio_adds_no_container_to_any_pod(documents: list[Document]) -> None:
    started = [document for document in documents if pod_of(document)]
    assert len(started) >= 4
    for document in started:
        assert labels_of(document)["sidecar.istio.io/inject"] == "false", document["metadata"]["name"]

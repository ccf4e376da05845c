"""Components for what not every cluster has, over prod: what they change, and that the rest still holds."""

import importlib
import json
import re
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import prometheus_client
import pytest
import yaml

from lingraft.training import metrics
from tests.manifests.conftest import MANIFESTS, built, overlaid, pod_of
from tests.manifests.policy import pod_violations

Document = dict[str, Any]
ROOT = MANIFESTS.parent
COMPONENTS = ("external-secrets", "narrow-egress", "proxy", "workload-identity", "private-registry")
"""The last one goes over the service accounts of the others."""
OF_OTHERS = {"ExternalSecret", "InferenceService", "NodePool"}
OF_OTHERS |= {"PodDefault", "PodMonitor", "PrometheusRule", "ServiceMonitor"}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Document]:
    """Objects of prod with all components that are not of an overlay of ours."""
    components = [f"components/{name}" for name in COMPONENTS]
    return overlaid(tmp_path_factory.mktemp("overlay"), resources=["overlays/prod"], components=components)


def _named(documents: list[Document], kind: str) -> dict[str, Document]:
    return {d["metadata"]["name"]: d for d in documents if d["kind"] == kind}


def test_objects_of_kubernetes_pass_their_strict_schema(everything: list[Document]) -> None:
    without_components = built("prod")
    for document in everything:
        if document["kind"] not in OF_OTHERS and document not in without_components:
            kubernetes_validate.validate(document, "1.34", strict=True)


def test_pods_keep_the_policy(everything: list[Document]) -> None:
    pods = {f"{d['kind']}/{d['metadata']['name']}": pod for d in everything if (pod := pod_of(d))}
    for name, pod in pods.items():
        served = name.startswith(("Deployment/", "InferenceService/"))
        assert not list(pod_violations(pod, served=served)), name


def test_every_account_pulls_and_no_image_comes_from_elsewhere(everything: list[Document]) -> None:
    accounts = _named(everything, "ServiceAccount")
    assert {"default", "lingraft-pipeline", "lingraft-mlflow", "lingraft-serving"} == {*accounts}
    assert all(account["imagePullSecrets"] == [{"name": "lingraft-registry"}] for account in accounts.values())
    pods = [pod for document in everything if (pod := pod_of(document))]
    images = {each["image"] for pod in pods for each in (*pod.get("initContainers", ()), *pod["containers"])}
    assert all(image.startswith("registry.example.org/") for image in images)


def test_no_port_is_open_to_every_address(everything: list[Document]) -> None:
    def rules(documents: list[Document]) -> list[Document]:
        policies = _named(documents, "NetworkPolicy").values()
        return [rule for policy in policies for rule in policy["spec"].get("egress", ())]

    assert [rule for rule in rules(built("prod")) if "to" not in rule]
    assert not [rule for rule in rules(everything) if "to" not in rule]


def test_mlflow_and_steps_have_the_proxy_and_its_authority(everything: list[Document]) -> None:
    (mlflow,) = pod_of(_named(everything, "Deployment")["mlflow"])["containers"]  # type: ignore[index]
    defaults = _named(everything, "PodDefault")
    assert {*defaults} == {"lingraft-runs"}
    settings = _named(everything, "ConfigMap")["lingraft-proxy"]["data"]
    for told in (mlflow, *(each["spec"] for each in defaults.values())):
        assert {"configMapRef": {"name": "lingraft-proxy"}} in told["envFrom"]
        (mounted,) = (each["mountPath"] for each in told["volumeMounts"] if each["name"] == "ca")
        assert settings["SSL_CERT_FILE"].startswith(mounted)
    # KFP's driver and launcher ask ml-pipeline.kubeflow, metadata-grpc-service.kubeflow and minio-service.kubeflow.
    assert {"mlflow", ".svc", ".kubeflow"} <= {*settings["NO_PROXY"].split(",")}


@pytest.mark.parametrize("labels", [{"pipeline/runid": "x"}, {"app.kubernetes.io/name": "mlflow"}], ids=str)
def test_whoever_has_the_proxy_may_reach_it(everything: list[Document], labels: dict[str, str]) -> None:
    settings = _named(everything, "ConfigMap")["lingraft-proxy"]["data"]
    opened = {
        port["port"]
        for policy in _named(everything, "NetworkPolicy").values()
        if _selects(policy["spec"]["podSelector"], labels)
        for rule in policy["spec"].get("egress", ())
        for port in rule.get("ports", ())
    }
    assert urlsplit(settings["HTTPS_PROXY"]).port in opened


def _selects(selector: Document, labels: dict[str, str]) -> bool:
    """Whether a policy is about pods with these labels."""
    expressions = selector.get("matchExpressions", ())
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        each["key"] in labels and labels[each["key"]] in each.get("values", [labels[each["key"]]])
        for each in expressions
    )


def test_the_store_makes_the_secrets_that_an_operator_would(everything: list[Document]) -> None:
    made = {*_named(everything, "ExternalSecret")}
    page = (ROOT / "docs" / "operations" / "install.md").read_text(encoding="utf-8")
    _, _, section = page.partition("### Secrets of prod\n")
    assert made == {*re.findall(r"create secret generic (\S+)", section.partition("\n### ")[0])}


def test_argo_cd_builds_an_overlay_that_there_is() -> None:
    (application,) = yaml.safe_load_all((MANIFESTS / "examples" / "argo-cd.yaml").read_text(encoding="utf-8"))
    assert (ROOT / application["spec"]["source"]["path"] / "kustomization.yaml").exists()
    assert application["spec"]["destination"]["namespace"] == "lingraft"
    assert application["spec"]["syncPolicy"]["automated"]["prune"] is False


def _metrics() -> set[str]:
    """Names of all metrics that there are, as Prometheus has them."""
    importlib.import_module("lingraft.serving.metrics")  # which registers its metrics
    families = prometheus_client.REGISTRY.collect()
    served = {
        sample for family in families for sample in (family.name, f"{family.name}_total", f"{family.name}_bucket")
    }
    return {name for name in served if name.startswith("lingraft_")} | {
        f"lingraft_training_{name}" for name in metrics.HELP
    }


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    (maps,) = (d for d in built("prod") if d["metadata"]["name"] == "lingraft-dashboard")
    assert maps["metadata"]["labels"]["grafana_dashboard"] == "1"
    panels = json.loads(maps["data"]["lingraft.json"])["panels"]
    shown = {name for panel in panels for t in panel["targets"] for name in re.findall(r"\blingraft_\w+", t["expr"])}
    assert len(shown) > 10
    assert shown <= _metrics()
    assert {f"lingraft_training_{name}" for name in metrics.HELP} <= shown


def test_the_endpoint_grows_by_a_metric_that_there_is() -> None:
    [metric] = _named(built("prod"), "InferenceService")["lingraft"]["spec"]["predictor"]["autoScaling"]["metrics"]
    assert {*re.findall(r"\blingraft_\w+", metric["external"]["metric"]["query"])} <= _metrics()

"""Whatever one object names, another object, the operator or the cluster provides."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes.utils.quantity import parse_quantity

import lingraft
from lingraft.config.cluster import Cluster
from lingraft.training import metrics
from pipelines.cluster import CREDENTIAL_KEYS, METRICS_LABEL, METRICS_PORT, TRACKING_KEYS
from tests.manifests.conftest import overlaid, pod_of
from tests.manifests.readme_secrets import secrets_of

Document = dict[str, Any]
REFERENCES = {
    ("secretKeyRef", "name"): "Secret",
    ("secretRef", "name"): "Secret",
    ("secret", "secretName"): "Secret",
    ("configMapKeyRef", "name"): "ConfigMap",
    ("configMapRef", "name"): "ConfigMap",
    ("configMap", "name"): "ConfigMap",
    ("persistentVolumeClaim", "claimName"): "PersistentVolumeClaim",
    ("predictor", "serviceAccountName"): "ServiceAccount",
    ("predictor", "priorityClassName"): "PriorityClass",
    ("spec", "serviceAccountName"): "ServiceAccount",
    ("spec", "priorityClassName"): "PriorityClass",
    ("spec", "serviceName"): "Service",
}


def _nodes(node: Any, key: str = "") -> Iterator[tuple[str, Document]]:
    """Every mapping of a document, with the key that it stands under."""
    if isinstance(node, dict):
        yield key, node
        for name, child in node.items():
            yield from _nodes(child, name)
    elif isinstance(node, list):
        for child in node:
            yield from _nodes(child, key)


def _referred(documents: list[Document]) -> set[tuple[str, str]]:
    found = {
        (kind, node[field])
        for key, node in _nodes(documents)
        for (parent, field), kind in REFERENCES.items()
        if key == parent and field in node
    }
    for binding in (document for document in documents if document["kind"] == "RoleBinding"):
        found |= {(part["kind"], part["name"]) for part in (binding["roleRef"], *binding["subjects"])}
    return found


def _kinds_and_names(documents: list[Document]) -> set[tuple[str, str]]:
    return {(document["kind"], document["metadata"]["name"]) for document in documents}


@pytest.fixture(scope="module")
def operator_secrets(overlay: str) -> list[Document]:
    """The Secrets that the README's commands create for an overlay."""
    return secrets_of(overlay)


def test_everything_that_is_named_exists(documents: list[Document], operator_secrets: list[Document]) -> None:
    provided = _kinds_and_names(documents) | _kinds_and_names(operator_secrets)
    referred = _referred(documents)
    assert "Secret" not in {document["kind"] for document in documents}  # which only an operator creates
    assert ("PersistentVolumeClaim", Cluster().storage_claim) in provided
    kinds = {kind for kind, _ in referred} | {"Service", "PersistentVolumeClaim"}  # prod's pods name none of them
    assert kinds == {*REFERENCES.values(), "Role"}
    assert referred <= provided


def test_the_readme_creates_each_key_that_is_read_and_no_secret_that_is_not(
    documents: list[Document], operator_secrets: list[Document]
) -> None:
    created = {secret["metadata"]["name"]: set(secret["data"]) for secret in operator_secrets}
    for key, node in _nodes(documents):
        if key == "secretKeyRef" and not node.get("optional"):
            assert node["key"] in created[node["name"]]
        if key == "secret":
            assert {item["key"] for item in node["items"]} <= created[node["secretName"]]
    assert set(TRACKING_KEYS) <= created[Cluster().tracking_secret] <= {*TRACKING_KEYS, *CREDENTIAL_KEYS}
    read = {name for kind, name in _referred(documents) if kind == "Secret"}
    assert set(created) == read | {Cluster().tracking_secret}
    assert {secret["metadata"]["namespace"] for secret in operator_secrets} == {"lingraft"}


def test_the_endpoint_serves_what_kserve_mounts_with_this_version_s_image(pods: dict[str, Document]) -> None:
    [server] = pods["InferenceService/lingraft"]["containers"]
    assert re.fullmatch(rf"ghcr\.io/lingraft/serve:{re.escape(lingraft.__version__)}(-gpu)?", server["image"])
    assert (server["command"], server["args"][0]) == (["lingraft", "serve"], "/mnt/models")
    [uri] = [each["value"] for each in server["env"] if each["name"] == "STORAGE_URI"]
    assert urlsplit(uri)[:2] == ("pvc", Cluster().storage_claim)


def test_each_service_reaches_a_port_of_a_pod(documents: list[Document]) -> None:
    templates = [d["spec"]["template"] for d in documents if d["kind"] in {"Deployment", "StatefulSet"}]
    for service in (document for document in documents if document["kind"] == "Service"):
        wanted = service["spec"]["selector"].items()
        (template,) = (one for one in templates if wanted <= one["metadata"]["labels"].items())
        names = {port["name"] for container in template["spec"]["containers"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names


def test_whatever_selects_pods_selects_some_that_exist(documents: list[Document]) -> None:
    policies = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "NetworkPolicy"}
    assert policies["default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    selecting = {"NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor", "PodMonitor"}
    apps = {d["metadata"]["name"] for d in documents if d["kind"] in {"Deployment", "StatefulSet"}}
    services = {d["metadata"]["name"] for d in documents if d["kind"] == "InferenceService"}
    known = {METRICS_LABEL: {"true"}, "serving.kserve.io/inferenceservice": services}
    known |= {"app.kubernetes.io/name": {*apps, "lingraft"}}
    selectors = [node for document in documents if document["kind"] in selecting for node in _nodes(document["spec"])]
    of_pods = [node for key, node in selectors if key in {"podSelector", "selector"} and node]
    assert len(of_pods) > 5
    for node in of_pods:
        for label, value in node.get("matchLabels", {}).items():
            assert value in known[label]
        # KFP labels every pod of a run.
        assert {each["key"] for each in node.get("matchExpressions", ())} <= {"pipeline/runid"}


def test_prometheus_is_let_in_where_steps_answer_it(documents: list[Document]) -> None:
    named = {document["metadata"]["name"]: document.get("spec") for document in documents}
    if "lingraft-steps" in named:
        (rule,) = named["metrics-of-steps"]["ingress"]
        (asked,) = named["lingraft-steps"]["podMetricsEndpoints"]
        assert asked["portNumber"] == rule["ports"][0]["port"] == METRICS_PORT


def test_alerts_are_about_metrics_that_there_are(documents: list[Document]) -> None:
    rules = [
        rule for d in documents if d["kind"] == "PrometheusRule" for g in d["spec"]["groups"] for rule in g["rules"]
    ]
    ours = {name for rule in rules for name in re.findall(r"\blingraft_\w+", rule["expr"])}
    there_are = {f"lingraft_training_{name}" for name in metrics.HELP} | {"lingraft_answers_total"}
    assert ours <= there_are
    assert not rules or len(ours) > 2
    risen = {name for rule in rules for name in re.findall(r"(?:increase|rate)\((\w+)", rule["expr"])}
    assert all(name.endswith("_total") for name in risen)  # of a gauge, either is nonsense where it falls
    assert not rules or f"lingraft_training_{metrics.SKIPPED}" in risen


def _allowed_hosts(documents: list[Document]) -> set[str]:
    (server,) = (d for d in documents if d["kind"] == "Deployment" and d["metadata"]["name"] == "mlflow")
    (container,) = server["spec"]["template"]["spec"]["containers"]
    assert {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}} in container["env"]
    (hosts,) = (each for each in container["args"] if each.startswith("--allowed-hosts="))
    named: str = hosts.partition("=")[2].replace("$(NAMESPACE)", server["metadata"]["namespace"])
    return set(named.split(","))


def test_mlflow_answers_to_every_name_of_its_service(documents: list[Document]) -> None:
    (service,) = (d for d in documents if d["kind"] == "Service" and d["metadata"]["name"] == "mlflow")
    (port,) = (port["port"] for port in service["spec"]["ports"])
    domains = ("", ".lingraft", ".lingraft.svc", ".lingraft.svc.cluster.local")
    assert {f"mlflow{domain}:{port}" for domain in domains} <= _allowed_hosts(documents)


def test_mlflow_answers_to_the_address_that_the_steps_are_given(
    documents: list[Document], operator_secrets: list[Document]
) -> None:
    (secret,) = (one for one in operator_secrets if one["metadata"]["name"] == Cluster().tracking_secret)
    uri = base64.b64decode(secret["data"]["MLFLOW_TRACKING_URI"]).decode()
    assert urlsplit(uri).netloc in _allowed_hosts(documents)


def test_another_namespace_is_set_in_one_place(tmp_path: Path) -> None:
    documents = overlaid(tmp_path, namespace="other", resources=["overlays/prod-auth"])
    spaces = {d["metadata"]["name"] for d in documents if d["kind"] == "Namespace"}
    spaces |= {d["metadata"]["namespace"] for d in documents if "namespace" in d["metadata"]}
    spaces |= {subject["namespace"] for d in documents if d["kind"] == "RoleBinding" for subject in d["subjects"]}
    assert spaces == {"other"}
    text = json.dumps(documents)
    assert not re.search(r"mlflow\.lingraft|namespace=.{0,4}lingraft", text)
    assert "mlflow.other.svc:5000" in _allowed_hosts(documents)


def test_the_namespace_keeps_the_label_by_which_kubeflow_knows_a_profile(documents: list[Document]) -> None:
    """Kubeflow's webhook applies PodDefaults only where `app.kubernetes.io/part-of` is `kubeflow-profile`."""
    [labels] = [d["metadata"]["labels"] for d in documents if d["kind"] == "Namespace"]
    assert {label.partition("/")[0] for label in labels} == {"pod-security.kubernetes.io"}


def test_replicas_of_mlflow_avoid_one_another(documents: list[Document]) -> None:
    (mlflow,) = (d for d in documents if d["kind"] == "Deployment" and d["metadata"]["name"] == "mlflow")
    if mlflow["spec"]["replicas"] > 1:
        rules = mlflow["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
        (term,) = rules["preferredDuringSchedulingIgnoredDuringExecution"]
        assert term["podAffinityTerm"]["labelSelector"] == mlflow["spec"]["selector"]
        assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"


def test_nothing_ends_a_pod_on_demand_that_is_not_to_be_disrupted(documents: list[Document]) -> None:
    """By karpenter.sh/v1: expireAfter drains whatever runs, and a grace period ends what do-not-disrupt delays."""
    pools = {d["metadata"]["name"]: d["spec"]["template"]["spec"] for d in documents if d["kind"] == "NodePool"}
    if pools:
        on_demand = pools["lingraft-gpu"]
        assert on_demand["expireAfter"] == "Never"
        assert "terminationGracePeriod" not in on_demand


def test_the_quota_admits_every_service_at_its_largest(documents: list[Document]) -> None:
    (quota,) = (document["spec"]["hard"] for document in documents if document["kind"] == "ResourceQuota")
    wanted = dict.fromkeys(quota, parse_quantity("0"))
    for document in documents:
        pod = pod_of(document) or {}
        copies = document.get("spec", {}).get("replicas") or pod.get("maxReplicas", 1)
        for container in pod.get("containers", []):
            for resource, amount in container["resources"]["requests"].items():
                wanted[f"requests.{resource}"] += copies * parse_quantity(amount)
    assert wanted["requests.cpu"] > 0
    assert all(amount <= parse_quantity(quota[resource]) for resource, amount in wanted.items())

"""Every object that we send to a cluster has the fields, and only the fields, that the cluster knows."""

import copy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from kubeflow_trainer_api.models import TrainerV1alpha1ClusterTrainingRuntime
from kubernetes import client

from tests.manifests.kserve_models import round_trip

Document = dict[str, Any]
KUBERNETES_VERSIONS = ("1.31", "1.34")
VALIDATED_BY_THEIR_PROJECTS = {"InferenceService", "ClusterTrainingRuntime"}
NOT_VALIDATED = {"NodePool", "PodMonitor", "PrometheusRule", "ServiceMonitor"}
"""Their projects publish no models for Python."""
README = Path(__file__).parents[2] / "docs" / "operations" / "install.md"


@pytest.fixture
def inference_service(documents: list[Document]) -> Document:
    (found,) = (document for document in documents if document["kind"] == "InferenceService")
    return copy.deepcopy(found)


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_object_of_kubernetes_passes_its_strict_schema(documents: list[Document], version: str) -> None:
    custom = VALIDATED_BY_THEIR_PROJECTS | NOT_VALIDATED
    native = [document for document in documents if document["kind"] not in custom]
    assert len(native) > len(documents) / 2
    for document in native:
        kubernetes_validate.validate(document, version, strict=True)


def test_the_strict_schema_refuses_a_misspelt_field(documents: list[Document]) -> None:
    deployment = copy.deepcopy(next(document for document in documents if document["kind"] == "Deployment"))
    deployment["spec"]["template"]["spec"]["enableServiceLink"] = False
    with pytest.raises(kubernetes_validate.ValidationError, match="enableServiceLink"):
        kubernetes_validate.validate(deployment, "1.34", strict=True)


def test_kserve_keeps_every_key_of_the_service(inference_service: Document) -> None:
    assert round_trip(inference_service) == inference_service


@pytest.mark.parametrize("path", [("spec", "predictor"), ("spec", "predictor", "containers", 0)])
def test_kserve_drops_a_key_that_it_does_not_know(inference_service: Document, path: tuple[str | int, ...]) -> None:
    node: Any = inference_service
    for step in path:
        node = node[step]
    node["minReplica"] = 1
    assert round_trip(inference_service) != inference_service


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_the_predictors_half_that_is_a_pod_passes_the_strict_schema_of_pods(
    inference_service: Document, version: str
) -> None:
    pod_fields = set(client.V1PodSpec.attribute_map.values())
    spec = {key: value for key, value in inference_service["spec"]["predictor"].items() if key in pod_fields}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "predictor"}, "spec": spec}
    kubernetes_validate.validate(pod, version, strict=True)


def test_kubeflow_trainer_keeps_every_key_of_the_runtime(documents: list[Document]) -> None:
    for document in documents:
        if document["kind"] == "ClusterTrainingRuntime":
            read = TrainerV1alpha1ClusterTrainingRuntime.from_dict(document)
            assert read is not None
            assert read.to_dict() == document
            changed = copy.deepcopy(document)
            changed["spec"]["template"]["spec"]["replicas"] = 1
            read = TrainerV1alpha1ClusterTrainingRuntime.from_dict(changed)
            assert read is not None
            assert read.to_dict() != changed


def test_the_readme_says_which_kinds_are_not_validated(documents: list[Document]) -> None:
    kinds = {document["kind"] for document in documents if "." in document["apiVersion"].partition("/")[0]}
    text = README.read_text(encoding="utf-8")
    assert all(f"`{kind}`" in text for kind in kinds & NOT_VALIDATED)

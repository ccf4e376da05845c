"""Every object that we send to a cluster has the fields, and only the fields, that the cluster knows."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from kubeflow_trainer_api.models import TrainerV1alpha1ClusterTrainingRuntime
from kubernetes import client

from tests.manifests.conftest import MANIFESTS, built
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
    return found


def test_kserve_keeps_every_key_of_the_service(inference_service: Document) -> None:
    assert round_trip(inference_service) == inference_service


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_object_of_kubernetes_passes_its_strict_schema(version: str) -> None:
    """Most objects are the same in all overlays, and are validated once."""
    documents = [document for folder in (MANIFESTS / "overlays").iterdir() for document in built(folder.name)]
    distinct = {json.dumps(document): document for document in documents}.values()
    native = [each for each in distinct if each["kind"] not in VALIDATED_BY_THEIR_PROJECTS | NOT_VALIDATED]
    assert len(native) > len(distinct) / 2
    for document in native:
        kubernetes_validate.validate(document, version, strict=True)


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


def test_the_readme_says_which_kinds_are_not_validated(documents: list[Document]) -> None:
    kinds = {document["kind"] for document in documents if "." in document["apiVersion"].partition("/")[0]}
    text = README.read_text(encoding="utf-8")
    assert all(f"`{kind}`" in text for kind in kinds & NOT_VALIDATED)

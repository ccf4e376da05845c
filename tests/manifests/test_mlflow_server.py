"""MLflow itself, started with the command and settings of the manifests, over SQLite and a local folder."""

import http.client
from typing import Any

import pytest

from tests.manifests.mlflow_server import status
from tests.tracking_server import shared
from tests.tracking_stores import quiet

Document = dict[str, Any]
SEARCH = "/api/2.0/mlflow/experiments/search"

# The overlays differ in the number of workers and in the stores, which are ours here: one start will do.
pytestmark = [
    quiet,
    pytest.mark.integration,
    pytest.mark.parametrize("overlay", ["local"], indirect=True, scope="session"),
]


@pytest.fixture(scope="session")
def server_port(overlay: str) -> int:
    """The port of a running server; its address, database and artifact folder are those of this run of the tests."""
    assert overlay == "local"
    return shared().port


def test_the_server_passes_its_probe_under_any_host(pods: dict[str, Document], server_port: int) -> None:
    container = pods["Deployment/mlflow"]["containers"][0]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        path = container[probe]["httpGet"]["path"]
        assert status(server_port, "GET", path, "10.0.0.7:5000") == http.client.OK


def test_the_server_answers_to_its_service_and_to_a_forwarded_port_and_to_no_other_host(server_port: int) -> None:
    for host in ("mlflow:5000", "mlflow.lingraft.svc.cluster.local:5000", "localhost:41234"):
        assert status(server_port, "POST", SEARCH, host) == http.client.OK
    assert status(server_port, "POST", SEARCH, "rebound.example:5000") == http.client.FORBIDDEN

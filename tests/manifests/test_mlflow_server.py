"""MLflow itself, started with the command and settings of the manifests, over SQLite and a local folder."""

import http.client
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

Document = dict[str, Any]
START_LIMIT_S = 180
SEARCH = "/api/2.0/mlflow/experiments/search"

# The overlays differ in the number of workers and in the stores, which are ours here: one start will do.
pytestmark = pytest.mark.parametrize("overlay", ["local"], indirect=True, scope="session")


def _command_and_settings(documents: list[Document], container: Document) -> tuple[list[str], dict[str, str]]:
    """What the kubelet would run, with $(NAME) filled in, and the plain values of its environment."""
    maps = {d["metadata"]["name"]: d["data"] for d in documents if d["kind"] == "ConfigMap"}
    settings: dict[str, str] = {}
    for source in container["envFrom"]:
        settings |= maps.get(source.get("configMapRef", {}).get("name"), {})
    settings |= {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}
    arguments = "\0".join(container["command"] + container["args"])
    return re.sub(r"\$\((\w+)\)", lambda name: settings[name[1]], arguments).split("\0"), settings


@pytest.fixture(scope="module")
def server_port(
    documents: list[Document], pods: dict[str, Document], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """The port of a running server; its address, database and artifact folder are this test's own."""
    folder = tmp_path_factory.mktemp("mlflow")
    command, settings = _command_and_settings(documents, pods["Deployment/mlflow"]["containers"][0])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ours = {"host": "127.0.0.1", "port": str(port), "artifacts-destination": str(folder / "artifacts")}
    for option, value in ours.items():
        (index,) = (i for i, argument in enumerate(command) if argument.startswith(f"--{option}="))
        command[index] = f"--{option}={value}"
    database = {"MLFLOW_BACKEND_STORE_URI": f"sqlite:///{folder / 'mlflow.db'}", "HOME": str(folder)}
    environment = os.environ | settings | database
    with (folder / "log").open("w") as log:
        command = [sys.executable, "-m", *command]
        server = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_until_healthy(server, port, folder / "log")
        yield port
    finally:
        server.terminate()
        server.wait(timeout=60)


def _status(port: int, method: str, path: str, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = '{"max_results": 1}' if method == "POST" else None
    connection.request(method, path, body, {"Host": host, "Content-Type": "application/json"})
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def _wait_until_healthy(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()
        try:
            if _status(port, "GET", "/health", "kubelet") == http.client.OK:
                return
        except ConnectionRefusedError:
            time.sleep(0.2)
    pytest.fail(f"MLflow was not healthy after {START_LIMIT_S} s:\n{log.read_text()}")


def test_the_server_passes_its_probe_under_any_host(pods: dict[str, Document], server_port: int) -> None:
    container = pods["Deployment/mlflow"]["containers"][0]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        path = container[probe]["httpGet"]["path"]
        assert _status(server_port, "GET", path, "10.0.0.7:5000") == http.client.OK


@pytest.mark.parametrize("host", ["mlflow:5000", "mlflow.lingraft.svc.cluster.local:5000", "localhost:41234"])
def test_the_server_answers_to_its_service_and_to_a_forwarded_port(server_port: int, host: str) -> None:
    assert _status(server_port, "POST", SEARCH, host) == http.client.OK


def test_the_server_refuses_another_host(server_port: int) -> None:
    assert _status(server_port, "POST", SEARCH, "rebound.example:5000") == http.client.FORBIDDEN

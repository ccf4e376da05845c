"""MLflow's server, started with the command and settings of an overlay; its stores are the test's own."""

import contextlib
import http.client
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

Document = dict[str, Any]
START_LIMIT_S = 600


@contextlib.contextmanager
def running(
    documents: list[Document],
    pods: dict[str, Document],
    database: str,
    folder: Path,
    secrets: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[int]:
    """The port of a running server on the loopback device.

    Args:
        documents: every object of an overlay.
        pods: its pod specifications.
        database: address that stands in for the Secret's.
        folder: for artifacts, the log, and as home.
        secrets: variables that stand in for those of Secrets.
    """
    command, settings = _command_and_settings(documents, pods["Deployment/mlflow"]["containers"][0], secrets)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ours = {"host": "127.0.0.1", "port": str(port), "artifacts-destination": str(folder / "artifacts")}
    for option, value in ours.items():
        (index,) = (i for i, argument in enumerate(command) if argument.startswith(f"--{option}="))
        command[index] = f"--{option}={value}"
    environment = os.environ | settings | {"MLFLOW_BACKEND_STORE_URI": database, "HOME": str(folder)}
    with (folder / "log").open("w") as log:
        command = [sys.executable, "-m", *command]
        server = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_until_healthy(server, port, folder / "log")
        yield port
    finally:
        server.terminate()
        server.wait(timeout=60)


def status(port: int, method: str, path: str, host: str) -> int:
    """The HTTP status of a request that names a host."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = '{"max_results": 1}' if method == "POST" else None
    connection.request(method, path, body, {"Host": host, "Content-Type": "application/json"})
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def _command_and_settings(
    documents: list[Document], container: Document, secrets: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """What the kubelet would run, with $(NAME) filled in, and its environment."""
    maps = {d["metadata"]["name"]: d["data"] for d in documents if d["kind"] == "ConfigMap"}
    settings: dict[str, str] = {}
    for source in container["envFrom"]:
        settings |= maps.get(source.get("configMapRef", {}).get("name"), {})
    settings |= {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}
    (mlflow,) = (d for d in documents if d["kind"] == "Deployment" and d["metadata"]["name"] == "mlflow")
    settings["NAMESPACE"] = mlflow["metadata"]["namespace"]
    settings |= secrets
    arguments = "\0".join(container["command"] + container["args"])
    return re.sub(r"\$\((\w+)\)", lambda name: settings[name[1]], arguments).split("\0"), settings


def _wait_until_healthy(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()
        try:
            if status(port, "GET", "/health", "kubelet") == http.client.OK:
                return
        except ConnectionRefusedError:
            time.sleep(0.2)
    pytest.fail(f"MLflow was not healthy after {START_LIMIT_S} s:\n{log.read_text()}")

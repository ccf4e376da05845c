from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lingraft.steps.launch import on_cluster
from lingraft.steps.launch.on_cluster import ClusterLauncher
from lingraft.steps.launch.pods import Manifest
from lingraft.steps.launch.workload import WorkloadState
from tests.steps.launch.api_server import ApiServer


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """A cluster without nodes, which kubectl is set to."""
    made = ApiServer()
    with made.serving(tmp_path) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield made


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the workloads that launchers have begun to follow, at a short interval."""
    found: list[str] = []

    follow = ClusterLauncher._final_state

    def watch(launcher: ClusterLauncher, workload: Manifest, *more: Any) -> WorkloadState:
        found.append(workload["metadata"]["name"])
        return follow(launcher, workload, *more)

    monkeypatch.setattr(ClusterLauncher, "_final_state", watch)
    monkeypatch.setattr(on_cluster, "_POLL_S", 0.05)
    monkeypatch.setattr(on_cluster, "_POLLS_PER_CHECK", 1)
    return found

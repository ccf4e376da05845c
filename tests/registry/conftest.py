"""Stores for the tests of the registry: a SQLite file, and the server that our manifests run."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.manifests import conftest as manifests
from tests.manifests.mlflow_server import running
from tests.postgresql import started
from tests.registry.project import Project
from tests.tracking_stores import sqlite_store

documents, pods = manifests.documents, manifests.pods


@pytest.fixture(scope="session")
def overlay() -> str:
    """Overlays start the same server, but for the number of workers."""
    return "local"


@pytest.fixture(scope="session")
def database() -> str:
    """What the server keeps its records in."""
    return "sqlite"


@pytest.fixture(scope="session")
def server(database: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a real server."""
    folder = tmp_path_factory.mktemp("server")
    objects = [request.getfixturevalue(name) for name in ("documents", "pods")]
    with contextlib.ExitStack() as stack:
        address = f"sqlite:///{folder / 'mlflow.db'}"
        if database == "postgresql":
            address = stack.enter_context(started()).address("mlflow")
        yield stack.enter_context(running(*objects, address, folder))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of a SQLite store, which the environment names."""
    folder = tmp_path_factory.mktemp("store")
    with sqlite_store(folder):
        yield folder


@pytest.fixture
def project(store: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Project:
    """A project of the test's own, in a SQLite file."""
    return Project.begin(f"p{abs(hash(request.node.name)) % 10**8}", tmp_path)


@pytest.fixture
def remote(server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Project:
    """The same, on a server."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{server}")
    return Project.begin(f"r{abs(hash(request.node.name)) % 10**8}", tmp_path)

"""Stores for the tests of the registry: SQLite files, and the server that our manifests run."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.manifests import conftest as manifests
from tests.manifests.mlflow_server import running
from tests.postgresql import started
from tests.tracking.promotion.prepared import opened
from tests.tracking.promotion.project import Project
from tests.tracking_server import shared
from tests.tracking_stores import sqlite_store

documents, pods = manifests.documents, manifests.pods


@pytest.fixture(scope="session")
def overlay() -> str:
    return "local"


@pytest.fixture(scope="session")
def database() -> str:
    return "sqlite"


@pytest.fixture(scope="session")
def server(database: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a real server: that of the run, or one on PostgreSQL, with as many workers as the overlay has."""
    if database == "sqlite":
        yield shared().port
        return
    folder = tmp_path_factory.mktemp("server")
    objects = [request.getfixturevalue(name) for name in ("documents", "pods")]
    with started() as postgresql, running(*objects, postgresql.address("mlflow"), folder) as port:
        yield port


@pytest.fixture
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Project]:
    """A project in a SQLite file of the test's own: a prepared one, or a new one."""
    folder = tmp_path / "store"
    if prepared := getattr(request, "param", None):
        with opened(prepared, folder) as project:
            yield project
        return
    folder.mkdir()
    with sqlite_store(folder):
        yield Project.begin("new", folder / "work")


@pytest.fixture
def remote(server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{server}")
    return Project.begin(f"r{uuid.uuid4().hex[:8]}", tmp_path)

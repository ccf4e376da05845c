"""One run of the pipelines for all tests that look at what it leaves, on MLflow over PostgreSQL."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingraft.config.search import SEARCH_STORAGE
from pipelines import forkserver
from tests.manifests import conftest as manifests
from tests.manifests.mlflow_server import Document, running
from tests.pipelines import after_imports
from tests.pipelines.finished import Finished
from tests.pipelines.project import Seen, recipe_in
from tests.postgresql import PostgreSql, started
from tests.training.distributed.launch import ROOT

multiprocessing.get_context("forkserver").set_forkserver_preload([*forkserver.IMPORTS, after_imports.__name__])
documents, pods = manifests.documents, manifests.pods


@pytest.fixture(scope="session")
def overlay() -> str:
    """The one whose server has a single worker."""
    return "local"


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the project that the pipelines run on."""
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="session")
def databases() -> Iterator[PostgreSql]:
    """A server with a database for MLflow, and another one for the trials of searches."""
    with started() as server:
        server.run("createdb", "-h", server.folder, "-U", "mlflow", "optuna")
        yield server


@pytest.fixture(scope="session")
def tracking_uri(
    documents: list[Document],
    pods: dict[str, Document],
    databases: PostgreSql,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """MLflow's server, as the manifests start it."""
    with running(documents, pods, databases.address("mlflow"), tmp_path_factory.mktemp("mlflow")) as port:
        yield f"http://localhost:{port}"


@pytest.fixture(scope="session")
def finished(project: Path, tracking_uri: str, databases: PostgreSql) -> Finished:
    """What the pipelines left."""
    stores = {"MLFLOW_TRACKING_URI": tracking_uri, SEARCH_STORAGE: databases.address("optuna")}
    command = [sys.executable, "-m", "tests.pipelines.project", str(project)]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | stores | {"OMP_NUM_THREADS": "1"})
    return Finished(project / "out", recipe_in(project), tracking_uri)


@pytest.fixture(scope="session")
def seen(finished: Finished, project: Path) -> Seen:
    """What was to be seen while the pipelines ran."""
    return Seen.load(project)

"""MLflow over PostgreSQL as the manifests run them: the schema's upgrade, then the server, then a stage's results.

The database server is this test's own: a new cluster in a temporary folder, that listens on a socket in it alone.
"""

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import mlflow.store.db_migrations
import pytest
import sqlalchemy
import torch
from alembic.script import ScriptDirectory
from kfp.local.orchestrator import enhanced_dag_orchestrator
from kfp.local.orchestrator.enhanced_dag_orchestrator import ParallelExecutor

from lingraft import artifact, tracking
from lingraft.artifact import Artifact, Kind
from lingraft.config import Recipe
from lingraft.plan import Progress
from lingraft.registered import embeddings_name
from lingraft.training_config import SEARCH_STORAGE
from pipelines import build, local
from tests.made_up import write
from tests.manifests.mlflow_server import Document, running
from tests.pipelines.finished import tiny

ROOT = Path(__file__).parents[2]
UPGRADE_LIMIT_S = 180

pytestmark = pytest.mark.integration


def _postgresql_tools() -> Path:
    """The folder of the newest PostgreSQL's own commands; Debian keeps them off the PATH, one folder a version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    assert found, "no PostgreSQL server in /usr/lib/postgresql: run `make system-deps`"
    return found[-1].parent


@dataclass(frozen=True)
class PostgreSql:
    """A running server."""

    run: Callable[..., None]
    """One of its commands, with its arguments."""
    folder: Path

    def address(self, database: str, password: str) -> str:
        """Of a database, in the form of the Secret."""
        return f"postgresql+psycopg://mlflow:{password}@/{database}?host={quote(str(self.folder))}"


@pytest.fixture(scope="module")
def postgresql() -> Iterator[tuple[PostgreSql, str]]:
    """A server with an empty database, and its password."""
    tools, password = _postgresql_tools(), secrets.token_hex(24)
    # Not pytest's folder: PostgreSQL refuses to run as root, and another user cannot enter a folder of root's.
    owner: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="lingraft-") as name:
        folder, data = Path(name), Path(name) / "data"

        def run(command: str, *arguments: object) -> None:
            environment = os.environ | {"PGPASSWORD": password}
            subprocess.run([tools / command, *map(str, arguments)], check=True, cwd=folder, env=environment, **owner)

        (folder / "password").write_text(password)
        if owner:
            subprocess.run(["chown", "--recursive", "postgres:", folder], check=True)
        run("initdb", "-D", data, "-U", "mlflow", f"--pwfile={folder / 'password'}", "-A", "scram-sha-256", "--no-sync")
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(f"listen_addresses = ''\nunix_socket_directories = '{folder}'\nfsync = off\n")
        run("pg_ctl", "start", "--wait", "-D", data, "--log", folder / "log")
        try:
            run("createdb", "-h", folder, "-U", "mlflow", "mlflow")
            yield PostgreSql(run, folder), password
        finally:
            run("pg_ctl", "stop", "--wait", "-D", data, "--mode", "fast")


@pytest.fixture(scope="module")
def database(postgresql: tuple[PostgreSql, str]) -> str:
    """Address of MLflow's database."""
    server, password = postgresql
    return server.address("mlflow", password)


@pytest.fixture(scope="module")
def upgrades(database: str) -> list[subprocess.CompletedProcess[str]]:
    """What became of two init containers that were started at the same time, with nothing in the database."""
    commands = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | {"MLFLOW_BACKEND_STORE_URI": database, "PATH": commands}

    def upgrade(_: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, ROOT / "manifests" / "base" / "upgrade_db.py"]
        return subprocess.run(
            command, check=False, env=environment, capture_output=True, text=True, timeout=UPGRADE_LIMIT_S
        )

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(upgrade, range(2)))


@pytest.fixture(scope="module")
def server(
    documents: list[Document],
    pods: dict[str, Document],
    database: str,
    upgrades: list[subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """The tracking URI of a server over the upgraded database."""
    with running(documents, pods, database, tmp_path_factory.mktemp("mlflow")) as port:
        yield f"http://localhost:{port}"


@pytest.fixture
def embeddings(tmp_path: Path) -> Artifact:
    """A small artifact to register."""
    with artifact.create(tmp_path / "embeddings", Kind.EMBEDDINGS) as draft:
        draft.tensors("vocabulary", {"table": torch.arange(12.0).reshape(4, 3)})
        draft.facts = {"language": "tr", "aligned_with": "a1" * 32}
    return Artifact.load(tmp_path / "embeddings", Kind.EMBEDDINGS)


def _rows(database: str, query: str) -> list[tuple[Any, ...]]:
    engine = sqlalchemy.create_engine(database)
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(sqlalchemy.text(query))]
    engine.dispose()
    return rows


def test_two_replicas_bring_one_empty_database_to_the_newest_schema_at_once(
    database: str, upgrades: list[subprocess.CompletedProcess[str]]
) -> None:
    assert [upgrade.returncode for upgrade in upgrades] == [0, 0], [upgrade.stderr for upgrade in upgrades]

    migrations = ScriptDirectory(str(Path(mlflow.store.db_migrations.__file__).parent))
    assert _rows(database, "SELECT version_num FROM alembic_version") == [(migrations.get_current_head(),)]


@pytest.mark.parametrize("overlay", ["local"], indirect=True, scope="session")
def test_a_stage_and_its_registered_artifact_are_kept_in_the_database(
    server: str, database: str, embeddings: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    name = "house-embeddings-tr"

    parent = tracking.open_run(Recipe.load(ROOT / "recipes" / "demo.toml"), "language")
    with tracking.stage(parent, "adapt-tr") as run:
        run.watch(Progress(step=5, tokens=640, flops=2e9, elapsed_s=0.5, loss=3.25, learning_rate=1e-3))
        run.record(embeddings, {"masked_accuracy": 0.125})
        tracking.register(name, embeddings.folder, Kind.EMBEDDINGS, run, {"depth": 2})
    tracking.close_run(parent)

    fetched = tracking.fetch(name, Kind.EMBEDDINGS, tmp_path / "fetched")
    assert fetched.fingerprint == embeddings.fingerprint
    assert tracking.tags_of(name)["depth"] == "2"
    runs = _rows(database, f"SELECT name, status FROM runs WHERE run_uuid IN ('{parent}', '{run.run_id}')")
    assert sorted(runs) == [("adapt-tr", "FINISHED"), ("language", "FINISHED")]
    losses = f"SELECT value, step FROM metrics WHERE key = 'loss' AND run_uuid = '{run.run_id}'"
    assert _rows(database, losses) == [(3.25, 5)]
    assert _rows(database, "SELECT name, alias, version FROM registered_model_aliases") == [(name, "champion", 1)]


@pytest.mark.parametrize("overlay", ["local"], indirect=True, scope="session")
def test_a_dump_that_is_restored_has_what_was_registered(
    postgresql: tuple[PostgreSql, str],
    database: str,
    embeddings: Artifact,
    server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    run = tracking.open_run(Recipe.load(ROOT / "recipes" / "demo.toml"), "language")
    with tracking.stage(run, "adapt-tr") as stage:
        tracking.register("kept-embeddings-tr", embeddings.folder, Kind.EMBEDDINGS, stage, {"depth": 2})
    tracking.close_run(run)
    own, password = postgresql
    here, dump = ("-h", own.folder, "-U", "mlflow"), own.folder / "mlflow.dump"
    own.run("pg_dump", *here, "--format=custom", "--dbname=mlflow", "--file", dump)
    own.run("createdb", *here, "restored")
    own.run("pg_restore", *here, "--clean", "--if-exists", "--dbname=restored", dump)
    for query in (
        "SELECT name, version, storage_location FROM model_versions ORDER BY 1, 2",
        "SELECT run_uuid, name, status FROM runs ORDER BY 1",
        "SELECT key, value, run_uuid FROM params ORDER BY 3, 1",
    ):
        rows = _rows(database, query)
        assert rows
        assert _rows(own.address("restored", password), query) == rows


class _ThreeAtOnce(ParallelExecutor):  # type: ignore[misc]  # kfp has no types
    """`kfp.local` runs two iterations of a loop at once, whatever the loop says."""

    def __init__(self) -> None:
        super().__init__()
        self.conservative_max = self.max_workers = 3


@pytest.mark.parametrize("overlay", ["local"], indirect=True, scope="session")
def test_a_pipeline_tracks_and_registers_three_languages_at_once_and_keeps_its_search_beside(
    server: str,
    postgresql: tuple[PostgreSql, str],
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, password = postgresql
    own.run("createdb", "-h", own.folder, "-U", "mlflow", "optuna")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv(SEARCH_STORAGE, own.address("optuna", password))
    monkeypatch.setattr(enhanced_dag_orchestrator, "ParallelExecutor", _ThreeAtOnce)
    languages = ("de", "tr", "el")
    recipe = tiny(tmp_path, targets=languages)
    cluster = recipe.cluster.model_copy(update={"parallel_languages": 3})
    recipe = recipe.model_copy(update={"name": "three", "cluster": cluster, "threads": 1})
    recipe = recipe.with_folder(write(tmp_path / "text", recipe.languages))

    for pipeline in (build.source_pipeline, build.depth_search_pipeline, build.language_pipeline):
        local.run(pipeline(recipe), tmp_path / "out")

    assert {tracking.tags_of(embeddings_name(recipe, language))["language"] for language in languages} == {*languages}
    spans = _rows(database, "SELECT start_time, end_time FROM runs WHERE name ~ '^adapt-(de|tr|el)-1$'")
    assert len(spans) == 3
    assert max(start for start, _ in spans) < min(end for _, end in spans), "they did not run at the same time"
    statuses = _rows(database, "SELECT DISTINCT status FROM runs WHERE name ~ '^(adapt|evaluate|register)-'")
    assert statuses == [("FINISHED",)]
    trials = "SELECT count(*) FROM trials WHERE state IN ('COMPLETE', 'PRUNED')"
    assert _rows(own.address("optuna", password), trials) == [(2,)]

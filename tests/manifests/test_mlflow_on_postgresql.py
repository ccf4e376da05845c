"""MLflow over PostgreSQL, which asks who is there, as the manifests run it: schema, server, and what a step does."""

import http.client
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlflow.store.db_migrations
import pytest
import sqlalchemy
import torch
from alembic.script import ScriptDirectory
from mlflow.exceptions import MlflowException

from lingraft import tracking
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.errors import TrackingError
from lingraft.training.schedule import TrainingMetrics
from tests.manifests.conftest import built, pods_of
from tests.manifests.mlflow_server import running, status
from tests.manifests.readme_secrets import content, secrets_of
from tests.postgresql import AWKWARD, PostgreSql

ROOT = Path(__file__).parents[2]
UPGRADE_LIMIT_S = 600

PASSWORD = AWKWARD + secrets.token_hex(16)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def database(postgresql: PostgreSql) -> str:
    """Address of MLflow's database."""
    return postgresql.address("mlflow")


@pytest.fixture(scope="module")
def operator_secrets(postgresql: PostgreSql) -> list[dict[str, Any]]:
    """What the documented commands make of awkward passwords, of the database and of the administrator."""
    return secrets_of("prod-auth", DATABASE=postgresql.address("mlflow"), ADMIN_PASSWORD=PASSWORD)


@pytest.fixture(scope="module")
def variables(operator_secrets: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of the server's pod, whose one user is the Secret's."""
    folder = tmp_path_factory.mktemp("mlflow")
    found = content(operator_secrets, "lingraft-mlflow-auth")
    (folder / "basic_auth.ini").write_text(found.pop("basic_auth.ini"))
    stores = content(operator_secrets, "lingraft-mlflow-server")
    return found | {
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "basic_auth.ini"),
        "MLFLOW_ARTIFACTS_DESTINATION": str(folder / "artifacts"),
        "MLFLOW_BACKEND_STORE_URI": stores["MLFLOW_BACKEND_STORE_URI"],
        "MLFLOW_WORKERS": "1",
    }


@pytest.fixture(scope="module")
def upgrades(variables: dict[str, str]) -> list[subprocess.CompletedProcess[str]]:
    """What became of two init containers that were started at the same time, with nothing in the database."""
    commands = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | variables | {"PATH": commands}

    def upgrade(_: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, ROOT / "manifests" / "base" / "upgrade_db.py"]
        return subprocess.run(
            command, check=False, env=environment, capture_output=True, text=True, timeout=UPGRADE_LIMIT_S
        )

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(upgrade, range(2)))


@pytest.fixture(scope="module")
def port(
    variables: dict[str, str],
    upgrades: list[subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[int]:
    """Of a server over the upgraded database."""
    folder, documents = tmp_path_factory.mktemp("server"), built("prod-auth")
    with running(documents, pods_of(documents), variables["MLFLOW_BACKEND_STORE_URI"], folder, variables) as listening:
        yield listening


@pytest.fixture
def as_a_step(port: int, operator_secrets: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracking with the name and password of a step's Secret."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{port}")
    its = content(operator_secrets, "lingraft-mlflow")
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, its[name])


@pytest.fixture
def embeddings(tmp_path: Path) -> Artifact:
    """A small artifact to register."""
    with artifact.create(tmp_path / "embeddings", Kind.EMBEDDINGS) as draft:
        draft.tensors("vocabulary", {"table_VD": torch.arange(12.0).reshape(4, 3)})
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


def test_probes_need_no_password_and_everything_else_does(port: int) -> None:
    assert status(port, "GET", "/health", "10.0.0.7:5000") == http.client.OK
    search = "/api/2.0/mlflow/experiments/search"
    assert status(port, "POST", search, f"localhost:{port}") == http.client.UNAUTHORIZED


@pytest.mark.usefixtures("as_a_step")
def test_a_guessed_password_is_refused_and_the_one_user_is_the_secrets(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tracking.open_run(Recipe.load(ROOT / "recipes" / "demo-scratch.toml"), "language")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "guessed")
    with pytest.raises((TrackingError, MlflowException), match="401"):
        tracking.close_run(run)
    assert _rows(database, "SELECT username, is_admin FROM users") == [("admin", True)]


@pytest.mark.usefixtures("as_a_step")
def test_a_stage_and_its_registered_artifact_are_kept_in_the_database(
    database: str, embeddings: Artifact, tmp_path: Path
) -> None:
    name = "house-embeddings-tr"

    parent = tracking.open_run(Recipe.load(ROOT / "recipes" / "demo-scratch.toml"), "language")
    with tracking.stage(parent, "adapt-tr") as run:
        run.watch(TrainingMetrics(step=5, tokens=640, flops=2e9, elapsed_s=0.5, loss=3.25, learning_rate=1e-3))
        run.record(embeddings, {"masked_accuracy": 0.125})
        tracking.register(name, embeddings.folder, Kind.EMBEDDINGS, run, {"depth": 2}, (tracking.CHAMPION,))
    tracking.close_run(parent)

    fetched = tracking.fetch(name, Kind.EMBEDDINGS, tmp_path / "fetched")
    assert fetched.fingerprint == embeddings.fingerprint
    assert tracking.tags_of(name)["depth"] == "2"
    runs = _rows(database, f"SELECT name, status FROM runs WHERE run_uuid IN ('{parent}', '{run.run_id}')")
    assert sorted(runs) == [("adapt-tr", "FINISHED"), ("language", "FINISHED")]
    losses = f"SELECT value, step FROM metrics WHERE key = 'loss' AND run_uuid = '{run.run_id}'"
    assert _rows(database, losses) == [(3.25, 5)]
    assert _rows(database, "SELECT name, alias, version FROM registered_model_aliases") == [(name, "champion", 1)]


@pytest.mark.usefixtures("as_a_step")
def test_a_dump_that_is_restored_has_what_was_registered(
    postgresql: PostgreSql, database: str, embeddings: Artifact
) -> None:
    run = tracking.open_run(Recipe.load(ROOT / "recipes" / "demo-scratch.toml"), "language")
    with tracking.stage(run, "adapt-tr") as stage:
        tracking.register("kept-embeddings-tr", embeddings.folder, Kind.EMBEDDINGS, stage, {"depth": 2})
    tracking.close_run(run)
    here, dump = ("-h", postgresql.folder, "-U", "mlflow"), postgresql.folder / "mlflow.dump"
    postgresql.run("pg_dump", *here, "--format=custom", "--dbname=mlflow", "--file", dump)
    postgresql.run("createdb", *here, "restored")
    postgresql.run("pg_restore", *here, "--clean", "--if-exists", "--dbname=restored", dump)
    for query in (
        "SELECT name, version, storage_location FROM model_versions ORDER BY 1, 2",
        "SELECT run_uuid, name, status FROM runs ORDER BY 1",
        "SELECT key, value, run_uuid FROM params ORDER BY 3, 1",
    ):
        rows = _rows(database, query)
        assert rows
        assert _rows(postgresql.address("restored"), query) == rows

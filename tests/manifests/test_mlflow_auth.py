"""MLflow that asks who is there, started with the command and settings of the overlay, and used as a step uses it."""

import http.client
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from mlflow.exceptions import MlflowException

from lingraft import tracking
from lingraft.config.recipe import Recipe
from lingraft.errors import TrackingError
from tests.manifests.mlflow_server import Document, mlflow_seen_by_the_doctor, running, status
from tests.manifests.readme_secrets import content, secrets_of
from tests.postgresql import AWKWARD, PostgreSql

ROOT = Path(__file__).parents[2]
SEARCH = "/api/2.0/mlflow/experiments/search"
PASSWORD = AWKWARD + secrets.token_hex(16)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("overlay", ["prod-auth"], indirect=True, scope="session"),
]


@pytest.fixture(scope="module")
def operator_secrets(postgresql: PostgreSql) -> list[dict[str, Any]]:
    """What the README's commands make of awkward passwords, of the database and of the administrator."""
    return secrets_of("prod-auth", DATABASE=postgresql.address("mlflow"), ADMIN_PASSWORD=PASSWORD)


@pytest.fixture(scope="module")
def port(
    documents: list[Document],
    pods: dict[str, Document],
    operator_secrets: list[dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[int]:
    """Of a running server over PostgreSQL, whose one user is the Secret's."""
    folder = tmp_path_factory.mktemp("mlflow")
    variables = content(operator_secrets, "lingraft-mlflow-auth")
    (folder / "basic_auth.ini").write_text(variables.pop("basic_auth.ini"))
    database = content(operator_secrets, "lingraft-mlflow-server")["MLFLOW_BACKEND_STORE_URI"]
    variables |= {
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "basic_auth.ini"),
        "MLFLOW_ARTIFACTS_DESTINATION": str(folder / "artifacts"),
        "MLFLOW_WORKERS": "1",
    }
    commands = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    initial = os.environ | variables | {"MLFLOW_BACKEND_STORE_URI": database, "PATH": commands}
    subprocess.run([sys.executable, ROOT / "manifests" / "base" / "upgrade_db.py"], env=initial, check=True)
    with running(documents, pods, database, folder, variables) as listening:
        yield listening


def test_probes_need_no_password_and_everything_else_does(port: int) -> None:
    assert status(port, "GET", "/health", "10.0.0.7:5000") == http.client.OK
    assert status(port, "POST", SEARCH, f"localhost:{port}") == http.client.UNAUTHORIZED


def test_a_step_tracks_with_the_name_and_password_of_its_secret(
    port: int, operator_secrets: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    its = content(operator_secrets, "lingraft-mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{port}")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", its["MLFLOW_TRACKING_USERNAME"])
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", its["MLFLOW_TRACKING_PASSWORD"])
    run = tracking.open_run(Recipe.load(ROOT / "recipes" / "demo.toml"), "language")
    tracking.close_run(run)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "guessed")
    with pytest.raises((TrackingError, MlflowException), match="401"):
        tracking.close_run(run)


def test_names_and_runs_are_kept_in_the_database_of_the_secret(port: int, postgresql: PostgreSql) -> None:
    engine = sqlalchemy.create_engine(postgresql.address("mlflow"))
    with engine.connect() as connection:
        users = connection.execute(sqlalchemy.text("SELECT username, is_admin FROM users")).all()
    engine.dispose()
    assert [tuple(user) for user in users] == [("admin", True)]


def test_the_doctor_cannot_say_who_asks_and_only_warns(port: int, tmp_path: Path) -> None:
    found = mlflow_seen_by_the_doctor(port, tmp_path)
    assert not found.is_lacking
    assert found.gap.startswith("answers 401")

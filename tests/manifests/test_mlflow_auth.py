"""MLflow that asks who is there, started with the command and settings of the overlay, and used as a step uses it."""

import http.client
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

from lingraft import tracking
from lingraft.config import Recipe
from lingraft.errors import TrackingError
from tests.manifests.mlflow_server import Document, running, status

ROOT = Path(__file__).parents[2]
SEARCH = "/api/2.0/mlflow/experiments/search"
PASSWORD = secrets.token_hex(16)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("overlay", ["prod-auth"], indirect=True, scope="session"),
]


@pytest.fixture(scope="module")
def port(
    documents: list[Document], pods: dict[str, Document], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """Of a running server over SQLite, whose one user is the Secret's."""
    folder = tmp_path_factory.mktemp("mlflow")
    database, users = f"sqlite:///{folder / 'mlflow.db'}", f"sqlite:///{folder / 'users.db'}"
    settings = f"[mlflow]\nadmin_username = admin\ndefault_permission = READ\ndatabase_uri = {users}\n"
    (folder / "basic_auth.ini").write_text(settings)
    upgrade = [sys.executable, "-m", "mlflow.server.auth", "db", "upgrade", "--url", users]  # as upgrade_db.py does
    subprocess.run(upgrade, check=True, capture_output=True)
    variables = {
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "basic_auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
        "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
        "MLFLOW_ARTIFACTS_DESTINATION": str(folder / "artifacts"),
        "MLFLOW_WORKERS": "1",
    }
    with running(documents, pods, database, folder, variables) as listening:
        yield listening


def test_probes_need_no_password_and_everything_else_does(port: int) -> None:
    assert status(port, "GET", "/health", "10.0.0.7:5000") == http.client.OK
    assert status(port, "POST", SEARCH, f"localhost:{port}") == http.client.UNAUTHORIZED


def test_a_step_tracks_with_the_name_and_password_of_its_secret(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{port}")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    run = tracking.open_run(Recipe.load(ROOT / "recipes" / "demo.toml"), "language")
    tracking.close_run(run)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "guessed")
    with pytest.raises((TrackingError, MlflowException), match="401"):
        tracking.close_run(run)

"""MLflow stores for tests."""

import contextlib
import functools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures import once

quiet = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
"""For tests in whose process MLflow 3.17 opens a database: it uses what SQLAlchemy 2.1 will give up."""


@contextlib.contextmanager
def sqlite_store(folder: Path) -> Iterator[str]:
    """The address of a new store in a folder, in the environment as the one to use."""
    file = folder / "mlflow.db"
    if not file.exists():
        new_database(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow.store.db.utils._get_latest_schema_revision", _schema_revision)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{file}")
        yield f"sqlite:///{file}"


def new_database(file: Path) -> None:
    """Write a database with MLflow's tables and nothing in them; MLflow takes seconds to make these itself."""
    shutil.copy(once.folder("mlflow-database", _make_database) / "mlflow.db", file)


def _make_database(folder: Path) -> None:
    from mlflow import MlflowClient

    MlflowClient(f"sqlite:///{folder / 'mlflow.db'}").search_experiments(max_results=1)


@functools.cache
def _schema_revision() -> str:
    """The revision that MLflow looks for in each new store; it would read all its migrations again each time."""
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config

    [head] = ScriptDirectory.from_config(_get_alembic_config(db_url="")).get_heads()
    return head

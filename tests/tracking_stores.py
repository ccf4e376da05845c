"""MLflow stores for tests."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

quiet = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
"""For tests in whose process MLflow 3.17 opens a database: it uses what SQLAlchemy 2.1 will give up."""


@contextlib.contextmanager
def sqlite_store(folder: Path) -> Iterator[str]:
    """The address of a new store in a folder, in the environment as the one to use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        yield f"sqlite:///{folder / 'mlflow.db'}"

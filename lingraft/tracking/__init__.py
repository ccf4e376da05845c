"""The only package that knows MLflow: one run a stage under one run a pipeline, and the registry of artifacts.

`MLFLOW_TRACKING_URI` names the store of runs: a server on a cluster, or a SQLite file on one machine. MLflow reads its
credentials from the environment too (`MLFLOW_TRACKING_TOKEN` and others). When a stage begins or ends and the server is
down, the stage waits for `LINGRAFT_TRACKING_WAIT_S` seconds (120); training itself never waits.

MLflow takes seconds to import, so this package imports it when a name below is first used. `environment` can thus
refuse a wrong address before.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING

from lingraft.errors import MissingExtraError
from lingraft.tracking import environment

if TYPE_CHECKING:
    from lingraft.tracking.client import RetryingClient, retrying_client
    from lingraft.tracking.registry import CHAMPION, fetch, fetch_run_artifact, register, tag, tags_of
    from lingraft.tracking.runs import (
        StageRun,
        close_run,
        describe,
        log_artifact,
        open_project_run,
        open_run,
        run_location,
        stage,
        tag_run,
        tags_of_run,
    )

__all__ = [
    "CHAMPION",
    "RetryingClient",
    "StageRun",
    "close_run",
    "describe",
    "fetch",
    "fetch_run_artifact",
    "log_artifact",
    "open_project_run",
    "open_run",
    "register",
    "retrying_client",
    "run_location",
    "stage",
    "tag",
    "tag_run",
    "tags_of",
    "tags_of_run",
]
_OF_CLIENT = {"RetryingClient", "retrying_client"}
_OF_REGISTRY = {"CHAMPION", "fetch", "fetch_run_artifact", "register", "tag", "tags_of"}


def _mlflow_is_installed() -> bool:
    try:
        return importlib.util.find_spec("mlflow") is not None
    except ImportError:
        return False


environment.set_up()  # MLflow reads some of it when it is imported
if not _mlflow_is_installed():
    raise MissingExtraError("mlflow", "tracking")


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "client" if name in _OF_CLIENT else "registry" if name in _OF_REGISTRY else "runs"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)

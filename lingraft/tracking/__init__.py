"""The only package that knows MLflow: one run a stage under one run a pipeline, and the registry of artifacts.

Where runs go is `MLFLOW_TRACKING_URI`'s business (with `MLFLOW_TRACKING_TOKEN` and its kin from the environment):
a server on a cluster, a SQLite file on one machine. `LINGRAFT_TRACKING_WAIT_S` says for how many seconds (120) a server
that is down is waited for when a stage begins or ends; training itself never waits for it.
"""

from lingraft import mlflow_environment
from lingraft.errors import MissingExtraError

try:
    mlflow_environment.set_up()  # MLflow reads some of it when it is imported
    import mlflow  # noqa: F401  what follows needs it
except ImportError as error:
    raise MissingExtraError("mlflow", "tracking") from error

from lingraft.tracking.registry import CHAMPION, fetch, fetch_kept, register, tag, tags_of
from lingraft.tracking.runs import (
    StageRun,
    close_run,
    describe,
    keep,
    open_project_run,
    open_run,
    place_of,
    stage,
    tag_run,
    tags_of_run,
)
from lingraft.tracking.server import Asking, asking

__all__ = [
    "CHAMPION",
    "Asking",
    "StageRun",
    "asking",
    "close_run",
    "describe",
    "fetch",
    "fetch_kept",
    "keep",
    "open_project_run",
    "open_run",
    "place_of",
    "register",
    "stage",
    "tag",
    "tag_run",
    "tags_of",
    "tags_of_run",
]

"""The only package that knows MLflow: one run a stage under one run a pipeline, and the registry of artifacts.

`MLFLOW_TRACKING_URI` names the store of runs: a server on a cluster, or a SQLite file on one machine. MLflow reads its
credentials from the environment too (`MLFLOW_TRACKING_TOKEN` and others). When a stage begins or ends and the server is
down, MLflow repeats the request for about two minutes; training itself never waits.

MLflow takes seconds to import, so this package imports it when a name below is first used. `environment` can thus
refuse a wrong address before.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING

from lingraft.errors import MissingExtraError
from lingraft.tracking import environment

if TYPE_CHECKING:
    from lingraft.tracking.client import connect as connect
    from lingraft.tracking.registry import register as register
    from lingraft.tracking.runs import StageRun as StageRun
    from lingraft.tracking.runs import close_abandoned as close_abandoned
    from lingraft.tracking.runs import close_run as close_run
    from lingraft.tracking.runs import describe as describe
    from lingraft.tracking.runs import log_artifact as log_artifact
    from lingraft.tracking.runs import open_run as open_run
    from lingraft.tracking.runs import stage as stage
    from lingraft.tracking.runs import tracked_run as tracked_run
    from lingraft.tracking.versions import CHAMPION as CHAMPION
    from lingraft.tracking.versions import fetch as fetch
    from lingraft.tracking.versions import fetch_run_artifact as fetch_run_artifact
    from lingraft.tracking.versions import tag as tag
    from lingraft.tracking.versions import tags_of as tags_of

_MODULES = ("client", "versions", "runs", "registry")
"""Modules with the public names, each of which imports those before it."""

environment.set_up()  # MLflow reads some of it when it is imported
try:
    _is_installed = importlib.util.find_spec("mlflow") is not None
except ImportError:
    _is_installed = False
if not _is_installed:
    raise MissingExtraError("mlflow", "tracking")


def __getattr__(name: str) -> object:
    for module in _MODULES:
        found = importlib.import_module(f"{__name__}.{module}")
        if hasattr(found, name):
            return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

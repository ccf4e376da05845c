"""MLflow's client, whose errors become ours, each with advice by MLflow's error code.

MLflow itself repeats requests while a server is down, for about two minutes; `MLFLOW_HTTP_REQUEST_MAX_RETRIES` and
`MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR` change that. A request may arrive twice, so whoever registers looks for duplicates.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, cast

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import ERROR_CODE_TO_HTTP_STATUS, MlflowException
from sqlalchemy.exc import SQLAlchemyError

from lingraft.artifacts.addresses import without_password
from lingraft.errors import TrackingError
from lingraft.tracking.environment import require_store

AT_ONCE_S = 5
"""Seconds that a request may take where nobody may wait for MLflow."""
ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
"""Error codes of MLflow for an unknown model, and for an alias that a model does not have."""
_DENIED = (
    "See that user, password or token are right: MLFLOW_TRACKING_USERNAME and _PASSWORD, or MLFLOW_TRACKING_TOKEN."
)
_ADVICE = {
    "RESOURCE_DOES_NOT_EXIST": "Somebody deleted it, or it is in another store: see MLFLOW_TRACKING_URI.",
    "UNAUTHENTICATED": _DENIED,
    "PERMISSION_DENIED": _DENIED,
    "CUSTOMER_UNAUTHORIZED": _DENIED,
}
"""Advice by MLflow's error code; for others, MLflow's own message says what is wrong."""
_RETRIED_STATUSES = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
"""HTTP statuses below 500 that may succeed when the request is repeated."""


class UnreachableError(TrackingError):
    """The server is down, too slow, or temporarily unable; the same request may succeed later."""

    heals = True


class _Client:
    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with mlflow_errors():  # a new client each time, since the address is the environment's at that moment
                return getattr(MlflowClient(), name)(*arguments, **named)

        return call


def connect(creates: bool = False) -> MlflowClient:
    """Return MLflow's client, whose methods raise TrackingError, or UnreachableError if the server stays down.

    Args:
        creates: whether MLflow may create a store where there is none, as the first run of a project does.
    """
    if not creates:
        require_store()
    return cast(MlflowClient, _Client())


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Have MLflow ask once, with a short timeout, where the process may be killed soon."""
    limits = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": str(AT_ONCE_S)}
    before = {name: os.environ.get(name) for name in limits}
    os.environ.update(limits)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def mlflow_errors() -> Iterator[None]:
    """Turn exceptions of MLflow into errors that say where, why, and what to do."""
    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        transient = _is_transient(error)
        code = getattr(error, "error_code", "")
        advice = "See that the server is up, and that MLFLOW_TRACKING_URI is right." if transient else _ADVICE.get(code)
        raise (UnreachableError if transient else TrackingError)(
            f"MLflow at {without_password(mlflow.get_tracking_uri())} did not do what was asked: "
            + " ".join(filter(None, [str(getattr(error, "message", error)), advice]))
        ) from error


@contextlib.contextmanager
def ignore_absent() -> Iterator[None]:
    """Ignore that MLflow lacks what is asked about, such as what another process has deleted already."""
    try:
        yield
    except TrackingError as error:
        if getattr(error.__cause__, "error_code", None) not in ABSENT:
            raise


def _is_transient(error: Any) -> bool:
    """Whether an error, or its cause, lies in the network or the server.

    An OSError comes from an upload: from the HTTP client if it has a response, else from local files.
    """
    if isinstance(error, MlflowException):
        status = ERROR_CODE_TO_HTTP_STATUS.get(error.error_code, HTTPStatus.INTERNAL_SERVER_ERROR)
        if status == HTTPStatus.INTERNAL_SERVER_ERROR and not mlflow.get_tracking_uri().startswith("http"):
            return False  # a database without a server, of another schema for example
        return _is_transient_status(status) or _is_transient(error.__cause__ or error.__context__)
    return hasattr(error, "response") and (error.response is None or _is_transient_status(error.response.status_code))


def _is_transient_status(status: int) -> bool:
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _RETRIED_STATUSES

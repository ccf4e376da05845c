"""Calls to MLflow with retries: for a limited time while the server is down, and so that nothing is done twice."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

import mlflow
from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES, MLFLOW_HTTP_REQUEST_TIMEOUT
from mlflow.exceptions import ERROR_CODE_TO_HTTP_STATUS, MlflowException

from lingraft.console import say
from lingraft.errors import TrackingError
from lingraft.tracking.environment import require_store
from lingraft.tracking.metrics_queue import UnreachableError, backoff

WAIT_VARIABLE = "LINGRAFT_TRACKING_WAIT_S"
WAIT_S = 120.0
"""Seconds to wait for a server that is down, unless the environment says otherwise."""
FINAL_WAIT_S = 5.0
"""Seconds to wait when a stage fails: whoever stops it may not wait long, and a rerun logs its metrics again."""

_RETRIES = str(MLFLOW_HTTP_REQUEST_MAX_RETRIES.name)
_TIMEOUT = str(MLFLOW_HTTP_REQUEST_TIMEOUT.name)
_REQUEST_TIMEOUT_S = "30"
"""Timeout of one request, unless the environment sets it; transfers of files have MLflow's own two minutes."""
_TRANSIENT_STATUSES = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS, 499}
"""HTTP statuses below 500 that may succeed when the request is repeated."""
_ALREADY_EXISTS = ("RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS")
"""Error codes of a create request that lost a race: a second attempt finds what the other process created."""

Result = TypeVar("Result")


class RetryingClient:
    """Calls of MLflow's API that are repeated while the server is down, with one time budget for all of them.

    MLflow's own retries are off meanwhile: they can block for many minutes, and they create a run twice if the server
    created it and its answer was lost. A call may be repeated, so it must look for an object before it creates it.
    """

    def __init__(self, wait_left_s: float, transfer_timeout: str | None) -> None:
        self.wait_left_s = wait_left_s
        """Seconds of the budget that are left."""
        self.repeated = False
        """Whether any call was repeated, so that a late request may have created something twice."""
        self._transfer_timeout = transfer_timeout

    def call(self, call: Callable[[], Result]) -> Result:
        """Return what `call` returns, and repeat it while the server is down.

        Raises:
            UnreachableError: the server stayed down until the time was over.
            TrackingError: the server refuses.
        """
        began = time.monotonic()
        budget_s = self.wait_left_s
        for pause_s in backoff():
            try:
                with mlflow_errors():
                    return call()
            except UnreachableError as error:
                self.repeated = True
                self.wait_left_s = max(0.0, budget_s - (time.monotonic() - began))
                if self.wait_left_s <= pause_s:
                    raise UnreachableError(f"{error} It was waited for as long as {WAIT_VARIABLE} says.") from error
                say(f"{error} Asking again, for {self.wait_left_s:.0f} s more.")
            time.sleep(pause_s)
        raise AssertionError("backoff() does not end")

    def transfer(self, call: Callable[[], Result]) -> Result:
        """Call with the timeout of file transfers, which take longer than other requests.

        Raises:
            UnreachableError: the server stayed down until the time was over.
            TrackingError: the server refuses.
        """
        with environment({_TIMEOUT: self._transfer_timeout}):
            return self.call(call)


@contextlib.contextmanager
def retrying_client(creates: bool = False) -> Iterator[RetryingClient]:
    """Open a client whose calls wait for a server that is down, `LINGRAFT_TRACKING_WAIT_S` seconds in all.

    Args:
        creates: whether MLflow may create a store where there is none, as the first run of a project does.

    Raises:
        NoStoreError: there is no store, and none is to be created.
        TrackingError: `LINGRAFT_TRACKING_WAIT_S` is not a number of seconds.
    """
    if not creates:
        require_store()
    given = os.environ.get(_TIMEOUT)
    wait_left_s = _wait_from_environment()
    with environment({_RETRIES: "0", _TIMEOUT: given or _REQUEST_TIMEOUT_S}):
        yield RetryingClient(wait_left_s, given)


@contextlib.contextmanager
def client_without_retries() -> Iterator[RetryingClient]:
    """Open a client for a process that may be killed soon: it calls once, with a short timeout."""
    with environment({_RETRIES: "0", _TIMEOUT: f"{FINAL_WAIT_S:.0f}"}):
        yield RetryingClient(0.0, f"{FINAL_WAIT_S:.0f}")


def _wait_from_environment() -> float:
    """Return the seconds to wait for a server that is down.

    Raises:
        TrackingError: the environment's value is not a number of seconds.
    """
    given = os.environ.get(WAIT_VARIABLE, str(WAIT_S))
    if not given.replace(".", "", 1).isdecimal():
        raise TrackingError(
            f"{WAIT_VARIABLE} is {given!r}, but must be a number of seconds, such as {WAIT_S:.0f}. Set it so."
        )
    return float(given)


@contextlib.contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables, or unset them (None), and restore the previous values at the end."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def mlflow_errors() -> Iterator[None]:
    """Turn exceptions of MLflow into errors that say where, why, and what to do.

    Raises:
        UnreachableError: the same call may succeed later.
        TrackingError: the same call will fail again.
    """
    try:
        yield
    except (MlflowException, OSError) as error:
        kind = UnreachableError if _is_transient(error) else TrackingError
        raise kind(
            f"MLflow at {mlflow.get_tracking_uri()} did not do what was asked: {getattr(error, 'message', error)} "
            "See that the server is up, and that MLFLOW_TRACKING_URI and its credentials are right."
        ) from error


def _is_transient(error: Any) -> bool:
    """Whether an error, or its cause, lies in the network or the server. MLflow reports some of these as "no access".

    An OSError comes from an upload: from the HTTP client if it has a response, else from local files.
    """
    if isinstance(error, MlflowException):
        status = ERROR_CODE_TO_HTTP_STATUS.get(error.error_code, HTTPStatus.INTERNAL_SERVER_ERROR)
        return (
            error.error_code in _ALREADY_EXISTS
            or _is_transient_status(status)
            or _is_transient(error.__cause__ or error.__context__)
        )
    return hasattr(error, "response") and (error.response is None or _is_transient_status(error.response.status_code))


def _is_transient_status(status: int) -> bool:
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _TRANSIENT_STATUSES

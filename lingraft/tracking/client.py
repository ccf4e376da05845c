"""How MLflow is asked: for a limited time while it is down, and so that nothing is done twice."""

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
"""How long an absent server is waited for, unless the environment says otherwise."""
FINAL_WAIT_S = 5.0
"""For a stage that fails: whoever stops it may not wait long, and a rerun brings its points again."""

_RETRIES, _TIMEOUT = str(MLFLOW_HTTP_REQUEST_MAX_RETRIES.name), str(MLFLOW_HTTP_REQUEST_TIMEOUT.name)
_REQUEST_TIMEOUT_S = "30"
"""For an answer, where the environment does not say it; files have MLflow's own two minutes."""
_TRANSIENT_STATUSES = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS, 499}
"""Refusals that may be over soon, beside all of 500 and above."""
_ALREADY_EXISTS = ("RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS")
"""Somebody made it between our looking for it and our making it: a second look finds it."""

Result = TypeVar("Answer")


class RetryingClient:
    """Requests that share one wait for a server that is down.

    MLflow's own retries are off meanwhile: they can block for many minutes, and they make a run twice if the server
    made it and its answer was lost. What is asked here may be asked again, so it must look before it makes.
    """

    def __init__(self, wait_left_s: float, transfer_timeout: str | None) -> None:
        self.wait_left_s = wait_left_s
        """Seconds of waiting that are left."""
        self.repeated = False
        """Whether anything was asked more than once, so that a late request may have made something twice."""
        self._transfer_timeout = transfer_timeout

    def call(self, call: Callable[[], Result]) -> Result:
        """What `call` returns, as soon as the server answers it.

        Raises:
            UnreachableError: the server was down for as long as it is waited for.
            TrackingError: the server refuses.
        """
        began, budget_s = time.monotonic(), self.wait_left_s
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
        """The same, for files, which take longer than other answers.

        Raises:
            UnreachableError: the server was down for as long as it is waited for.
            TrackingError: the server refuses.
        """
        with environment({_TIMEOUT: self._transfer_timeout}):
            return self.call(call)


@contextlib.contextmanager
def retrying_client(creates: bool = False) -> Iterator[RetryingClient]:
    """Ask MLflow, waiting in all as long as `LINGRAFT_TRACKING_WAIT_S` says.

    Args:
        creates: let MLflow create a store where there is none, as the first run of a project does.

    Raises:
        NoStoreError: there is no store, and none is to be created.
        TrackingError: the waiting time is no number of seconds.
    """
    if not creates:
        require_store()
    given, wait_left_s = os.environ.get(_TIMEOUT), _wait_from_environment()
    with environment({_RETRIES: "0", _TIMEOUT: given or _REQUEST_TIMEOUT_S}):
        yield RetryingClient(wait_left_s, given)


@contextlib.contextmanager
def client_without_retries() -> Iterator[RetryingClient]:
    """Ask MLflow once, by somebody who may be killed in a moment."""
    with environment({_RETRIES: "0", _TIMEOUT: f"{FINAL_WAIT_S:.0f}"}):
        yield RetryingClient(0.0, f"{FINAL_WAIT_S:.0f}")


def _wait_from_environment() -> float:
    """Seconds that an absent server is waited for.

    Raises:
        TrackingError: what the environment says is no number of seconds.
    """
    given = os.environ.get(WAIT_VARIABLE, str(WAIT_S))
    if not given.replace(".", "", 1).isdecimal():
        raise TrackingError(
            f"{WAIT_VARIABLE} is {given!r}, but must be a number of seconds, such as {WAIT_S:.0f}. Set it so."
        )
    return float(given)


@contextlib.contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables, or unset them, and put back what was there."""
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
    """Turn what MLflow raises into an error that says where, why, and what to do.

    Raises:
        UnreachableError: asked later, the server may do it.
        TrackingError: it will not.
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
    """Whether an error, or one that it came of, is of the network or the server: MLflow calls some "no access".

    An OSError is that of an upload: of the HTTP client if it has a response, else of local files.
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

"""Calls to MLflow with retries: for a limited time while the server is down, and so that nothing is done twice."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar, cast

import mlflow
from mlflow import MlflowClient
from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES, MLFLOW_HTTP_REQUEST_TIMEOUT
from mlflow.exceptions import ERROR_CODE_TO_HTTP_STATUS, MlflowException

from lingraft.console import say
from lingraft.errors import TrackingError
from lingraft.retry import retry, seconds_from_environment
from lingraft.tracking.environment import require_store

WAIT_VARIABLE = "LINGRAFT_TRACKING_WAIT_S"
WAIT_S = 120.0
"""Seconds to wait for a server that is down, unless the environment says otherwise."""
FINAL_WAIT_S = 5.0
"""Seconds to wait when a stage fails: whoever stops it may not wait long, and a rerun logs its metrics again."""
ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
"""Error codes of MLflow for an unknown model, and for an alias that a model does not have."""

_RETRIES = str(MLFLOW_HTTP_REQUEST_MAX_RETRIES.name)
_TIMEOUT = str(MLFLOW_HTTP_REQUEST_TIMEOUT.name)
_REQUEST_TIMEOUT_S = "30"
"""Timeout of one request, unless the environment sets it; transfers of files have MLflow's own two minutes."""
_TRANSIENT_STATUSES = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS, 499}
"""HTTP statuses below 500 that may succeed when the request is repeated."""
_ALREADY_EXISTS = ("RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS")
"""Error codes of a create request that lost a race: a second attempt finds what the other process created."""
_LOST_RACES = ("IntegrityError", "UniqueViolation")
"""Names, in messages of MLflow, of a database's errors for the same: two stages log the same dataset at once."""

Result = TypeVar("Result")


class UnreachableError(TrackingError):
    """The server is down, too slow, or temporarily unable; the same request may succeed later."""

    heals = True


class RetryingClient:
    """MLflow's API with calls that are repeated while the server is down, and one time budget for all of them.

    MLflow's own retries are off meanwhile: they can block for many minutes, and they create a run twice if the server
    created it and its answer was lost. A call may be repeated, so it must look for an object before it creates it.

    Whatever is given a client raises UnreachableError if the server stays down until the budget is spent, and
    TrackingError if the server refuses.
    """

    def __init__(self, wait_left_s: float, transfer_timeout: str | None) -> None:
        self.wait_left_s = wait_left_s
        """Seconds of the budget that are left."""
        self.repeated = False
        """Whether any call was repeated, so that a late request may have created something twice."""
        self.api = cast(MlflowClient, _RepeatedCalls(self))
        """MLflow's client, each of whose methods goes through `call`."""
        self._transfer_timeout = transfer_timeout

    def call(self, call: Callable[[], Result]) -> Result:
        """Return what `call` returns, and repeat it while the server is down."""
        began_s = time.monotonic()
        budget_s = self.wait_left_s

        def before_pause(error: Exception, left_s: float) -> None:
            self.repeated = True
            self.wait_left_s = left_s
            say(f"{error} Asking again, for {left_s:.0f} s more.")

        def call_once() -> Result:
            with mlflow_errors():
                return call()

        try:
            return retry(call_once, lambda error: isinstance(error, UnreachableError), budget_s, before_pause)
        except UnreachableError as error:
            self.repeated = True
            self.wait_left_s = max(0.0, budget_s - (time.monotonic() - began_s))
            raise UnreachableError(f"{error} It was waited for as long as {WAIT_VARIABLE} says.") from error

    def transfer(self, call: Callable[[], Result]) -> Result:
        """Call with the timeout of file transfers, which take longer than other requests."""
        with environment({_TIMEOUT: self._transfer_timeout}):
            return self.call(call)


class _RepeatedCalls:
    def __init__(self, client: RetryingClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def method(*arguments: Any, **named: Any) -> Any:
            # A client of its own each time, as the store's address is the environment's at that moment.
            return self._client.call(partial(getattr(MlflowClient(), name), *arguments, **named))

        return method


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
    timeout = os.environ.get(_TIMEOUT)
    wait_s = seconds_from_environment(WAIT_VARIABLE, WAIT_S)
    with environment({_RETRIES: "0", _TIMEOUT: timeout or _REQUEST_TIMEOUT_S}):
        yield RetryingClient(wait_s, timeout)


@contextlib.contextmanager
def client_without_retries() -> Iterator[RetryingClient]:
    """Open a client for a process that may be killed soon: it calls once, with a short timeout."""
    with environment({_RETRIES: "0", _TIMEOUT: f"{FINAL_WAIT_S:.0f}"}):
        yield RetryingClient(0.0, f"{FINAL_WAIT_S:.0f}")


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


@contextlib.contextmanager
def ignore_absent() -> Iterator[None]:
    """Ignore that MLflow lacks what is asked about, such as what an earlier attempt has deleted already."""
    try:
        yield
    except (MlflowException, TrackingError) as error:
        if getattr(error if isinstance(error, MlflowException) else error.__cause__, "error_code", None) not in ABSENT:
            raise


def _is_transient(error: Any) -> bool:
    """Whether an error, or its cause, lies in the network or the server. MLflow reports some of these as "no access".

    An OSError comes from an upload: from the HTTP client if it has a response, else from local files.
    """
    if isinstance(error, MlflowException):
        status = ERROR_CODE_TO_HTTP_STATUS.get(error.error_code, HTTPStatus.INTERNAL_SERVER_ERROR)
        return (
            error.error_code in _ALREADY_EXISTS
            or any(name in error.message for name in _LOST_RACES)
            or _is_transient_status(status)
            or _is_transient(error.__cause__ or error.__context__)
        )
    return hasattr(error, "response") and (error.response is None or _is_transient_status(error.response.status_code))


def _is_transient_status(status: int) -> bool:
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _TRANSIENT_STATUSES

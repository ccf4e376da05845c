"""Watch a workload on Kubernetes to its end, through failures of the connection."""

import time
from collections.abc import Iterator

import urllib3
from kubernetes.client.rest import ApiException

from lingraft.console import say
from lingraft.steps.launch.pods import Manifest
from lingraft.steps.launch.workload import WorkloadPhase, Workloads, WorkloadState, mark_deleted, state_of

_GONE = 410
_NOT_FOUND = 404
TRANSIENT = {_GONE, 429, 500, 502, 503, 504}
_WATCH_S = 30
"""Seconds after which a watch is renewed."""
_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between requests to an API server that does not answer; the last one is repeated without end."""
UNREACHABLE = (urllib3.exceptions.HTTPError, ConnectionError)


def watch_job(workloads: Workloads, workload: Manifest) -> WorkloadState:
    """Wait until a workload has ended, and return its state.

    Raises:
        ApiException: the API server refuses, for example for lack of rights.
    """
    for known in _states(workloads, workload):
        state = state_of(known)
        if state.phase is not WorkloadPhase.RUNNING:
            return state
    raise AssertionError("a workload is followed to its end")


def _states(workloads: Workloads, workload: Manifest) -> Iterator[Manifest]:
    name = workload["metadata"]["name"]
    failures = 0
    while True:
        yield workload
        try:
            yield from workloads.changes(workload, _WATCH_S)
            # A read catches changes between two watches, and those older than the API server remembers.
            workload = workloads.read(name)
            failures = 0
        except (ApiException, *UNREACHABLE) as error:
            if is_absent(error):
                workload = mark_deleted(workload)
                continue
            _require_passing(error, failures)
            time.sleep(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
            failures += 1
            workload = _read_again(workloads, workload)


def _read_again(workloads: Workloads, workload: Manifest) -> Manifest:
    """Read the workload; return the known one if the server still does not answer."""
    try:
        return workloads.read(workload["metadata"]["name"])
    except (ApiException, *UNREACHABLE) as error:
        return mark_deleted(workload) if is_absent(error) else workload


def _require_passing(error: Exception, failures: int) -> None:
    if isinstance(error, ApiException) and error.status not in TRANSIENT:
        raise error
    if failures == len(_PAUSES_S):
        say(f"the API server does not answer, and is asked on: {error}")


def is_absent(error: Exception) -> bool:
    """Return whether the API server says that the object does not exist."""
    return isinstance(error, ApiException) and error.status == _NOT_FOUND

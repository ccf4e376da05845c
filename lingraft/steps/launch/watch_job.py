"""Watch a workload on Kubernetes to its end, through failures of the API server."""

import time

import urllib3
from kubernetes.client.rest import ApiException

from lingraft.console import say
from lingraft.steps.launch.pods import Manifest
from lingraft.steps.launch.workload import DELETED, WorkloadPhase, Workloads, WorkloadState, state_of

_NOT_FOUND = 404
TRANSIENT = {410, 429, 500, 502, 503, 504}
UNREACHABLE = (urllib3.exceptions.HTTPError, ConnectionError)
_POLL_S = 1.0
_FAILURES_BEFORE_NOTE = 10
"""Failed requests in a row after which the log says so."""


def watch_job(workloads: Workloads, workload: Manifest) -> WorkloadState:
    """Wait until a workload has ended, and return its state; an API server that does not answer is asked on.

    Raises:
        ApiException: the API server refuses, for example for lack of rights.
    """
    failures = 0
    while (state := state_of(workload)).phase is WorkloadPhase.RUNNING:
        time.sleep(_POLL_S)
        try:
            workload = workloads.read(workload["metadata"]["name"])
            failures = 0
        except (ApiException, *UNREACHABLE) as error:
            if is_absent(error):
                return WorkloadState(WorkloadPhase.FAILED, DELETED, "somebody deleted it")
            if isinstance(error, ApiException) and error.status not in TRANSIENT:
                raise
            failures += 1
            if failures == _FAILURES_BEFORE_NOTE:
                say(f"the API server does not answer, and is asked on: {error}")
    return state


def is_absent(error: Exception) -> bool:
    """Return whether the API server says that the object does not exist."""
    return isinstance(error, ApiException) and error.status == _NOT_FOUND

"""Run a step as a Job or TrainJob: create it, or find the one of an earlier launcher, and follow it to its end."""

import contextlib
import datetime
import itertools
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kubernetes import client, config
from kubernetes.client.rest import ApiException

from lingraft.config.cluster import Cluster, Profile
from lingraft.console import say
from lingraft.retry import poll, retry
from lingraft.signals import EXIT_CODES, Interruption, interruptible
from lingraft.steps.launch.calls import AttemptResult, LaunchError, StepAnswer, out_of_memory
from lingraft.steps.launch.handover import CallAttempt, Handover
from lingraft.steps.launch.health import HealthCheck
from lingraft.steps.launch.log_stream import FAILURES_BEFORE_NOTE, LogStream
from lingraft.steps.launch.pods import LABEL, QUEUE_LABEL, STEP, Manifest
from lingraft.steps.launch.workload import (
    KINDS,
    MANIFESTS,
    TRANSIENT,
    UNREACHABLE,
    WorkloadPhase,
    Workloads,
    WorkloadState,
    format_api_error,
    is_absent,
    is_suspended,
    is_transient,
    is_unauthorized,
    state_of,
)

Result = TypeVar("Result")

_KUBECONFIG = "KUBECONFIG"
_CONFLICT = 409
_FORBIDDEN = 403
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TIME_LIMIT = "DeadlineExceeded"
_DELETED = "Deleted"
"""Our own reason of failure, beside those of Kubernetes."""
_NOT_STARTED = "NotStarted"
"""Our own reason of failure for a workload that did not start in time, and that we delete."""
_POLL_S = 1.0
_POLLS_PER_CHECK = 5
_TOKEN_LIFE_S = 3607
"""Seconds for which Kubernetes issues a pod's token; the kubelet replaces it before."""
_OUT_OF_MEMORY = "OOMKilled"
_KILLED_EXIT_CODES = {137, 143, *EXIT_CODES.values()}
"""Exit codes of processes that were killed or asked to stop, by somebody other than the launcher."""
_LATE = datetime.datetime.max.replace(tzinfo=datetime.UTC)
_NODE_REASONS = {"NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "NodeAffinity"}
"""Reasons of the kubelet for ending pods that did nothing wrong. Eviction for lack of disk is the pod's own fault."""
ATTEMPT = "lingraft.io/attempt"
"""Annotation with the name of the attempt, whose folder on the claim holds call and outputs."""


def connect() -> tuple[client.ApiClient, str]:
    """Return a client of the cluster's API and our namespace, from the pod or from kubectl's configuration.

    Raises:
        LaunchError: there is neither.
    """
    try:
        in_pod = _NAMESPACE_FILE.exists() and _KUBECONFIG not in os.environ
        namespace = _namespace_of_pod() if in_pod else _namespace_of_context()
        return client.ApiClient(), namespace
    except config.ConfigException as error:
        raise LaunchError(
            f"there is no cluster to launch on: {error}. Run this step in a pod, or set KUBECONFIG."
        ) from error


def _namespace_of_pod() -> str:
    config.load_incluster_config()
    return _NAMESPACE_FILE.read_text(encoding="utf-8").strip()


def _namespace_of_context() -> str:
    file = os.environ.get(_KUBECONFIG)  # the client reads it once, when it is imported
    config.load_kube_config(file)
    _, active = config.list_kube_config_contexts(file)
    return str(active["context"].get("namespace", "default"))


class ClusterLauncher:
    """Runs attempts at one step on a cluster."""

    def __init__(self, cluster: Cluster, profile: Profile, handover: Handover) -> None:
        """Connect to the cluster.

        Raises:
            LaunchError: there is no cluster.
        """
        self._manifest = MANIFESTS[str(profile.launched)]
        self._kind = KINDS[str(profile.launched)]
        self._cluster = cluster
        self._profile = profile
        self._handover = handover
        self._api, self._namespace = connect()
        self._workloads = Workloads(self._api, self._kind, self._namespace)

    def attempt(self) -> AttemptResult:
        """Launch the step, or find it running, follow it to its end, and collect its outputs.

        Raises:
            ArtifactError: inputs or outputs cannot be copied.
            Interruption: this process was asked to stop, and so was the step.
        """
        with interruptible():
            try:
                return self._follow(self._find_running() or self._create())
            except ApiException as error:
                return _refusal(error)
            except UNREACHABLE as error:
                return AttemptResult(StepAnswer(error=f"the API server does not answer: {error}", heals=True))
            except Interruption:
                self._delete_running()
                raise

    def _follow(self, workload: Manifest) -> AttemptResult:
        name = workload["metadata"]["name"]
        attempt = self._attempt_of(workload)
        log_stream = LogStream(self._api, self._namespace, self._kind, name)
        health = HealthCheck(name, self._profile.nodes, self._profile.start_limit_s, self._handover.tracking_run)
        try:
            state = self._final_state(workload, log_stream, health)
            ended = self._result(name, attempt.answer, state, log_stream)
            if ended.reason is None:
                self._handover.collect(attempt)
            return ended
        except ApiException as error:
            if not is_unauthorized(error):
                raise
            follow = f"kubectl -n {self._namespace} logs --follow --selector {log_stream.selector}"
            return AttemptResult(
                failed=f"{name} goes on, but the API server has refused our token for {_TOKEN_LIFE_S:g} s (401). "
                f"Follow it with {follow}, or run the same again with a valid token, which finds it"
            )
        except Interruption:
            self._delete_running()  # before the log stream is closed, which waits while the pod lives
            raise
        finally:
            health.close()
            log_stream.close()

    def _final_state(self, workload: Manifest, log_stream: LogStream, health: HealthCheck) -> WorkloadState:
        """Wait for the end of a workload; one that does not start in time is deleted."""
        name = workload["metadata"]["name"]
        for count, _ in enumerate(poll(_POLL_S)):
            if (state := state_of(workload)).phase is not WorkloadPhase.RUNNING:
                return state
            if count % _POLLS_PER_CHECK == 0:
                # A refusal is told by the log stream, which asks for the same.
                with contextlib.suppress(ApiException, *UNREACHABLE):
                    pods = log_stream.pods()
                    if cause := health.check(is_suspended(workload), pods, log_stream.warnings):
                        self._workloads.delete(name)
                        return WorkloadState(WorkloadPhase.FAILED, _NOT_STARTED, cause)
            try:
                workload = self._ask(lambda: self._workloads.read(name))
            except ApiException as error:
                if is_absent(error):
                    return WorkloadState(WorkloadPhase.FAILED, _DELETED, "somebody deleted it")
                raise
        raise AssertionError("poll() does not end")

    def _ask(self, request: Callable[[], Result]) -> Result:
        """Return what a request returns, and repeat it while the API server does not answer.

        Raises:
            ApiException: the request is refused. A token that has expired is read again for `_TOKEN_LIFE_S` before.
        """
        failures, expired = itertools.count(1), itertools.count(1)

        def note(error: Exception, _left_s: float) -> None:
            if next(failures) == FAILURES_BEFORE_NOTE:
                say(f"the API server does not answer, and is asked on: {error}")

        def log_in(error: Exception, left_s: float) -> None:
            if next(expired) == 1:
                say(f"the token is read again for {left_s:.0f} s, since it has expired: {format_api_error(error)}")
            with contextlib.suppress(LaunchError):
                renewed, _ = connect()
                self._api.configuration, self._api.rest_client = renewed.configuration, renewed.rest_client

        def ask() -> Result:
            return retry(request, is_transient, math.inf, note)

        return retry(ask, is_unauthorized, _TOKEN_LIFE_S, log_in)

    def _find_running(self) -> Manifest | None:
        """Return the workload of an earlier launcher if it still runs or has succeeded."""
        known = [each for each in self._of_call() if "deletionTimestamp" not in each["metadata"]]
        phase = state_of(known[-1]).phase if known else WorkloadPhase.FAILED
        if phase is WorkloadPhase.FAILED or (
            phase is WorkloadPhase.SUCCEEDED and not self._attempt_of(known[-1]).answer
        ):
            return None
        # The kind comes from the profile, because items of Kubernetes' lists have none.
        say(f"{self._profile.launched} {known[-1]['metadata']['name']} is there already, and is followed")
        return known[-1]

    def _attempt_of(self, workload: Manifest) -> CallAttempt:
        return self._handover.attempt(workload["metadata"]["annotations"][ATTEMPT])

    def _of_call(self) -> list[Manifest]:
        return self._workloads.of_call(self._handover.key)

    def _create(self) -> Manifest:
        number = 1 + max((int(each["metadata"]["name"].rpartition("-")[2]) for each in self._of_call()), default=0)
        name = f"lingraft-{self._handover.key}-{number}"
        attempt = self._handover.attempt()
        self._handover.send(attempt)
        queue = {QUEUE_LABEL: self._cluster.queue} if self._cluster.queue else {}
        self._workloads.delete_expired()
        metadata = {
            "name": name,
            "labels": {LABEL: self._handover.key, **STEP, **queue},
            "annotations": {ATTEMPT: attempt.name},
        }
        try:
            made = self._workloads.create(self._manifest(metadata, self._cluster, self._profile, attempt))
        except ApiException as error:
            if error.status != _CONFLICT:
                raise
            made = self._workloads.read(name)  # another launcher was faster, or the answer to ours was lost
        say(f"{self._profile.launched} {name} was launched in namespace {self._namespace}")
        return made

    def _delete_running(self) -> None:
        """Delete the running workload; the step writes a checkpoint before it ends."""
        try:
            for each in self._of_call():
                if state_of(each).phase is WorkloadPhase.RUNNING:
                    self._workloads.delete(each["metadata"]["name"])
        except (ApiException, *UNREACHABLE) as error:
            if not is_absent(error):
                say(f"{self._handover.key} could not be ended, and runs on: {error}. End it, or run the same again.")

    def _result(
        self, name: str, answer: StepAnswer | None, state: WorkloadState, log_stream: LogStream
    ) -> AttemptResult:
        if answer and not (answer.heals and self._profile.nodes > 1):
            return AttemptResult(answer)
        if state.phase is WorkloadPhase.SUCCEEDED:
            return AttemptResult(
                vanished=f"{name} succeeded, but another launcher has taken its answer, or the claim is another"
            )
        if state.reason == _TIME_LIMIT:
            limit = f"its profile's time limit of {self._profile.time_limit_s} s"
            return AttemptResult(
                failed=f"{name} was ended at {limit}. Raise it, and run the same again: what it kept stays."
            )
        if state.reason == _NOT_STARTED:
            return AttemptResult(failed=state.message)
        pods = self._ask(log_stream.pods)
        # The answer may come from a machine that lost another, whose pod tells why.
        if answer and not _killed_for_memory(pods):
            return AttemptResult(answer)
        return _classify_exit(name, state, pods, self._profile.memory)


def _refusal(error: ApiException) -> AttemptResult:
    """Return the result of a refusal by the API server: a full quota is transient, a missing right is not."""
    said = format_api_error(error)
    if error.status in {*TRANSIENT, _CONFLICT}:
        return AttemptResult(StepAnswer(error=f"the API server cannot at the moment: {said}", heals=True))
    if error.status == _FORBIDDEN and "exceeded quota" in said:
        return AttemptResult(StepAnswer(error=f"the namespace's quota has no room: {said}", heals=True))
    return AttemptResult(failed=f"Kubernetes refuses: {said}")


def _classify_exit(name: str, state: WorkloadState, pods: Sequence[Any], memory: str) -> AttemptResult:
    """Return the result of an attempt whose workload ended without an answer.

    Args:
        name: name of the workload.
        state: final state of the workload.
        pods: pods of the workload, as the Kubernetes client returns them; those of a lost node may be missing.
        memory: memory limit of its profile.
    """
    if _killed_for_memory(pods):
        return out_of_memory(name, memory)
    if state.reason == _DELETED:
        return AttemptResult(failed=f"{name} was deleted by somebody. Run the same again to go on.")
    disrupted = [words for pod in pods if (words := _disruption(pod))]
    if disrupted or not pods:
        return AttemptResult(vanished=f"{name} lost its node ({'; '.join(disrupted) or 'its pods are gone'})")
    code = _first_exit_code(pods)
    if code in _KILLED_EXIT_CODES:
        return AttemptResult(vanished=f"{name} was killed (exit code {code})")
    what = "" if code is None else f", exit code {code}"
    return AttemptResult(failed=f"{name} failed ({state.reason}: {state.message}{what}), and its log says why")


def _killed_for_memory(pods: Sequence[Any]) -> bool:
    """Return whether the kernel has killed a container of the pods for its memory."""
    return any(end.reason == _OUT_OF_MEMORY for pod in pods for end in _ends_of(pod))


def _first_exit_code(pods: Sequence[Any]) -> int | None:
    """Return the exit code of the pod that failed first: where several train together, the others are killed later."""
    failed = [end for pod in pods for end in _ends_of(pod) if end.exit_code]
    if not failed:
        return None
    # Times are in whole seconds, and who is killed for another's failure may end within the same.
    return min(failed, key=lambda end: (end.finished_at or _LATE, end.exit_code in _KILLED_EXIT_CODES)).exit_code


def _ends_of(pod: Any) -> list[Any]:
    statuses = pod.status.container_statuses or ()
    return [status.state.terminated for status in statuses if status.state and status.state.terminated]


def _disruption(pod: Any) -> str:
    """Return why a pod was ended through no fault of its own; empty if that was not so."""
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return f"{condition.reason}: {condition.message}"
    return f"{pod.status.reason}: {pod.status.message}" if pod.status.reason in _NODE_REASONS else ""

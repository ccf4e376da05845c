"""Rollout of an InferenceService: apply it, promote or take back a canary, and wait until it is ready or cannot be.

`kserve.KServeClient` is not used: it raises RuntimeError for every refusal, so that an absent service, a concurrent
change and an API server that is down are the same, and waits for `observedGeneration` and the condition Ready. Both may
date from before the change (kserve/kserve#6081: the generation is that of the Deployment or Knative Service below), so
that the pods of the revision must be asked.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client
from kubernetes.client.rest import ApiException

from lingraft.console import say
from lingraft.deployment.inference_service import API_VERSION, GROUP, LABEL, PLURAL
from lingraft.errors import DeploymentError
from lingraft.retry import poll
from lingraft.steps.launch.health import waits_of
from lingraft.steps.launch.pods import Manifest
from lingraft.steps.launch.workload import UNREACHABLE, format_api_error, is_absent, is_transient

APPLIED, PREVIOUS = "lingraft.io/applied", "lingraft.io/previous"
"""Annotations: the predictor as it was sent, and the one that had all traffic before, as JSON."""
REVISION = "lingraft.io/revision"
"""Annotation of the predictor, which KServe copies to its pods: a hash of what they are made of."""
_CANARY = "canaryTrafficPercent"
_SCALING = {_CANARY, "minReplicas", "maxReplicas", "scaleMetric", "scaleTarget", "autoScaling"}
"""Keys of a predictor that change the number of pods or their traffic, but no pod."""
_POLL_S = 1.0
_PERMANENT_REASONS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
}
"""Reasons for which a container waits in vain."""
_TAIL_LINES = 15


@dataclass
class Rollout:
    """One InferenceService; every method raises DeploymentError if the API server refuses."""

    api: client.ApiClient
    namespace: str
    name: str
    _shown: set[str] = field(default_factory=set)

    def apply(self, manifest: Manifest) -> None:
        """Create or replace the service; the predictor before is kept for a rollback.

        Raises:
            DeploymentError: somebody else has changed the service at the same time.
        """
        current, predictor = self._read(), manifest["spec"]["predictor"]
        sent = manifest["metadata"]["annotations"]
        if current is None:
            self._call("create_namespaced_custom_object", _changed(manifest, sent, predictor))
            return
        annotations = current["metadata"].get("annotations", {})
        if annotations.get(APPLIED) == _to_json(predictor):
            say(f"{self.name} is as it should be")
            return
        # A canary that is replaced by another one has never had all traffic: its predecessor stays the one before.
        if _CANARY not in _applied(current):
            annotations = annotations | {PREVIOUS: _to_json(_applied(current))}
        self._replace(current, annotations | sent, predictor)

    def promote(self) -> None:
        """Give the canary all traffic.

        Raises:
            DeploymentError: there is no canary.
        """
        current = self._require()
        predictor = _applied(current)
        if not predictor.pop(_CANARY, None):
            raise DeploymentError(f"{self.name} has no canary with traffic. Deploy one with --canary PERCENT.")
        self._replace(current, current["metadata"]["annotations"], predictor)

    def rollback(self) -> None:
        """Take the canary's traffic away; without a canary, return to the predictor before.

        Raises:
            DeploymentError: there is no predictor before.
        """
        current = self._require()
        annotations = dict(current["metadata"].get("annotations", {}))
        if PREVIOUS not in annotations:
            raise DeploymentError(f"nothing was deployed as {self.name} before what is. Deploy what is to be served.")
        if _applied(current).get(_CANARY):
            # KServe then sends all requests to the revision that had all traffic last, whose pods still run.
            predictor = _applied(current) | {_CANARY: 0}
        else:
            predictor = json.loads(annotations.pop(PREVIOUS))
        self._replace(current, annotations, predictor)

    def until_ready(self, wait_s: float) -> str:
        """Wait until the service is ready, show its changes meanwhile, and return its address.

        Raises:
            DeploymentError: a pod cannot start, or the time is over; the message has the reason.
        """
        unmet: list[str] = []
        for _ in poll(_POLL_S, wait_s):
            current = self._poll()
            pods = self._newest_pods(current) if current else []
            if current and _is_ready(current, pods):
                return str(current["status"].get("url", ""))
            unmet = _unmet_conditions(current) if current else ["it is not there"]
            for line in (*(unmet if current else ()), *waits_of(pods)):
                self._show_once(line)
            if failures := [*self._failures(pods)]:
                raise DeploymentError(f"{self.name} cannot become ready: {'; '.join(failures)}")
        raise DeploymentError(
            f"{self.name} is not ready after {wait_s:g} s: {'; '.join(unmet) or 'KServe has said nothing of it yet'}. "
            "`lingraft deploy --rollback` goes back; `kubectl describe inferenceservice` shows more."
        )

    def _read(self) -> Manifest | None:
        try:
            return dict(self._call("get_namespaced_custom_object", self.name))
        except DeploymentError as error:
            if is_absent(error.__cause__):
                return None
            raise

    def _require(self) -> Manifest:
        current = self._read()
        if current is None:
            raise DeploymentError(f"there is no InferenceService {self.name!r} in {self.namespace}. Deploy it first.")
        return current

    def _poll(self) -> Manifest | None:
        """Read the service; None also while the API server is away."""
        try:
            return self._read()
        except DeploymentError as error:
            if not is_transient(error.__cause__):
                raise
            self._show_once(str(error))
            return None

    def _replace(self, current: Manifest, annotations: Manifest, predictor: Manifest) -> None:
        # Metadata holds the version that we have read, so that of two changes at once one is refused.
        self._call("replace_namespaced_custom_object", self.name, _changed(current, annotations, predictor))

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(client.CustomObjectsApi(self.api), method)(
                GROUP, API_VERSION, self.namespace, PLURAL, *arguments
            )
        except (ApiException, *UNREACHABLE) as error:
            raise DeploymentError(
                f"Kubernetes does not do what was asked of {self.name!r}: {format_api_error(error)}"
            ) from error

    def _newest_pods(self, current: Manifest) -> list[Any]:
        """Return the pods of the newest revision; those of the one before keep running while new ones start."""
        revision = current["spec"]["predictor"].get("annotations", {}).get(REVISION)
        try:
            pods = client.CoreV1Api(self.api).list_namespaced_pod(self.namespace, label_selector=f"{LABEL}={self.name}")
        except (ApiException, *UNREACHABLE) as error:
            self._show_once(f"pods cannot be looked at: {format_api_error(error)}")
            return []
        return [
            pod
            for pod in pods.items
            if not pod.metadata.deletion_timestamp and (pod.metadata.annotations or {}).get(REVISION) == revision
        ]

    def _failures(self, pods: Sequence[Any]) -> Iterator[str]:
        """Yield the containers that will not start, with the end of their logs."""
        for pod in pods:
            for status in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
                waiting, ended = status.state.waiting, status.last_state.terminated
                if waiting and waiting.reason in _PERMANENT_REASONS:
                    exit_code = f"exit {ended.exit_code}" if ended else ""
                    reason = " ".join(filter(None, (waiting.reason, waiting.message, exit_code)))
                    yield f"{status.name} of pod {pod.metadata.name}: {reason}{self._log_tail(pod, status)}"

    def _log_tail(self, pod: Any, status: Any) -> str:
        try:
            log = client.CoreV1Api(self.api).read_namespaced_pod_log(
                pod.metadata.name,
                self.namespace,
                container=status.name,
                tail_lines=_TAIL_LINES,
                previous=status.restart_count > 0,
                _preload_content=False,
            )
        except (ApiException, *UNREACHABLE):  # a container that never ran has none
            return ""
        text = log.data.decode("utf-8", "replace").strip()
        return f". It last said:\n{text}" if text else ""

    def _show_once(self, line: str) -> None:
        if line not in self._shown:
            self._shown.add(line)
            say(f"{self.name}: {line}")


def _is_ready(current: Manifest, pods: Sequence[Any]) -> bool:
    """Return whether enough pods of the newest revision are ready, and KServe sends requests to them."""
    of_pods = [[(each.type, each.status) for each in pod.status.conditions or ()] for pod in pods]
    of_service = [(each["type"], each["status"]) for each in current.get("status", {}).get("conditions", ())]
    ready_pods = sum(("Ready", "True") in conditions for conditions in of_pods)
    return ready_pods >= current["spec"]["predictor"].get("minReplicas", 1) and ("Ready", "True") in of_service


def _unmet_conditions(current: Manifest) -> list[str]:
    return [
        " ".join(filter(None, (each["type"], each.get("reason", ""), each.get("message", ""))))
        for each in current.get("status", {}).get("conditions", ())
        if each["status"] != "True" and (each.get("reason") or each.get("message"))
    ]


def _applied(current: Manifest) -> Manifest:
    """Return the predictor as it was sent last; the cluster's has KServe's defaults besides."""
    applied = current["metadata"].get("annotations", {}).get(APPLIED)
    return dict(json.loads(applied) if applied else current["spec"]["predictor"])


def _to_json(predictor: Manifest) -> str:
    return json.dumps(predictor, sort_keys=True)


def _changed(service: Manifest, annotations: Manifest, predictor: Manifest) -> Manifest:
    """Return a service with other annotations and another predictor, and the hash of what its pods are made of.

    The hash leaves scaling out, so that a canary's pods stay when it is promoted.
    """
    pods = {key: value for key, value in predictor.items() if key not in _SCALING}
    revision = hashlib.sha256(_to_json(pods).encode()).hexdigest()[:16]
    of_pods = predictor.get("annotations", {}) | {REVISION: revision}
    return {
        "apiVersion": service["apiVersion"],
        "kind": service["kind"],
        "metadata": service["metadata"] | {"annotations": annotations | {APPLIED: _to_json(predictor)}},
        "spec": service["spec"] | {"predictor": predictor | {"annotations": of_pods}},
    }

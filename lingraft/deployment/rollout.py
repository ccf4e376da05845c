"""Bringing an InferenceService to a cluster, and following it until it is ready, or it is clear why not.

Pods tell whether a change is ready: `observedGeneration` in the status of an InferenceService counts generations of the
Deployment or Knative Service below it (kserve/kserve#6081), and Ready may be left from before the change.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client
from kubernetes.client.rest import ApiException

from lingraft.console import say
from lingraft.deployment.manifest import API_VERSION, GROUP, LABEL, PLURAL, Manifest
from lingraft.errors import DeploymentError
from lingraft.steps.launch.watch_job import TRANSIENT, UNREACHABLE, is_absent

APPLIED, PREVIOUS = "lingraft.io/applied", "lingraft.io/previous"
"""Annotations: the predictor as it was sent, and the one that had all traffic before, as JSON."""
REVISION = "lingraft.io/revision"
"""Annotation of the predictor, which KServe copies to its pods: a hash of what they are made of."""
CANARY = "canaryTrafficPercent"
_SCALING = {CANARY, "minReplicas", "maxReplicas", "scaleMetric", "scaleTarget", "autoScaling"}
"""Keys of a predictor that change how many pods there are or what traffic they get, but no pod."""
_POLL_S = 1.0
_PERMANENT_REASONS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
}
"""Reasons of waiting that time does not mend."""
_TAIL_LINES = 15


@dataclass
class Rollout:
    """One InferenceService."""

    api: client.ApiClient
    namespace: str
    name: str
    _told: set[str] = field(default_factory=set)

    def apply(self, manifest: Manifest) -> None:
        """Create the service, or change it to this; what was before is noted for a rollback.

        Raises:
            DeploymentError: the API server refuses, or somebody else has changed it at the same time.
        """
        known, predictor = self.read(), manifest["spec"]["predictor"]
        annotations = manifest["metadata"]["annotations"]
        if known is None:
            noted = manifest["metadata"] | {"annotations": annotations | {APPLIED: _to_json(predictor)}}
            spec = manifest["spec"] | {"predictor": _with_revision(predictor)}
            self._ask("create_namespaced_custom_object", manifest | {"metadata": noted, "spec": spec})
            return
        notes = known["metadata"].get("annotations", {})
        if notes.get(APPLIED) == _to_json(predictor):
            say(f"{self.name} is as it should be")
            return
        # A canary that another one replaces has never had all traffic: what stood before it still counts.
        if CANARY not in _predictor(known):
            notes = notes | {PREVIOUS: _to_json(_predictor(known))}
        self._replace(known, notes | annotations, predictor)

    def promote(self) -> None:
        """Give the canary all traffic.

        Raises:
            DeploymentError: there is no canary, or the API server refuses.
        """
        known = self._known()
        predictor = _predictor(known)
        if not predictor.pop(CANARY, None):
            raise DeploymentError(f"{self.name} has no canary with traffic. Deploy one with --canary PERCENT.")
        self._replace(known, known["metadata"]["annotations"], predictor)

    def rollback(self) -> None:
        """Take the canary's traffic away; without a canary, go back to what was deployed before.

        Raises:
            DeploymentError: nothing was before, or the API server refuses.
        """
        known = self._known()
        notes = dict(known["metadata"].get("annotations", {}))
        if PREVIOUS not in notes:
            raise DeploymentError(f"nothing was deployed as {self.name} before what is. Deploy what is to be served.")
        if _predictor(known).get(CANARY):
            # KServe itself sends all to the revision that had all of it last, whose pods still run.
            self._replace(known, notes, _predictor(known) | {CANARY: 0})
            return
        self._replace(known, notes, json.loads(notes.pop(PREVIOUS)))

    def until_ready(self, wait_s: float) -> str:
        """Follow the service until it is ready, and say what changes meanwhile; returns its address.

        Raises:
            DeploymentError: a pod cannot start, or the time is over; the message has the reason.
        """
        deadline_s = time.monotonic() + wait_s
        while True:
            known = self._polled()
            pods = self._newest_pods(known) if known else []
            if known and _is_ready(known, pods):
                return str(known["status"].get("url", ""))
            for line in _unmet_conditions(known) if known else ():
                self._tell(line)
            hopeless = [*self._hopeless(pods)]
            if hopeless:
                raise DeploymentError(f"{self.name} cannot become ready: {'; '.join(hopeless)}")
            if time.monotonic() >= deadline_s:
                last = "; ".join(_unmet_conditions(known)) if known else "it is not there"
                raise DeploymentError(
                    f"{self.name} is not ready after {wait_s:g} s: {last or 'KServe has said nothing of it yet'}. "
                    "`lingraft deploy --rollback` goes back; `kubectl describe inferenceservice` shows more."
                )
            time.sleep(_POLL_S)

    def read(self) -> Manifest | None:
        """The service as it is; None if there is none.

        Raises:
            DeploymentError: the API server refuses.
        """
        try:
            return dict(self._ask("get_namespaced_custom_object", self.name))
        except DeploymentError as error:
            if is_absent(error.__cause__):  # type: ignore[arg-type]
                return None
            raise

    def _known(self) -> Manifest:
        known = self.read()
        if known is None:
            raise DeploymentError(f"there is no InferenceService {self.name!r} in {self.namespace}. Deploy it first.")
        return known

    def _replace(self, known: Manifest, notes: Manifest, predictor: Manifest) -> None:
        """With the version that we have read, so that of two changes at once one is refused."""
        metadata = known["metadata"] | {"annotations": notes | {APPLIED: _to_json(predictor)}}
        changed = {key: known[key] for key in ("apiVersion", "kind")}
        spec = known["spec"] | {"predictor": _with_revision(predictor)}
        self._ask("replace_namespaced_custom_object", self.name, changed | {"metadata": metadata, "spec": spec})

    def _ask(self, method: str, *given: Any) -> Any:
        call = getattr(client.CustomObjectsApi(self.api), method)
        try:
            return call(GROUP, API_VERSION, self.namespace, PLURAL, *given)
        except (ApiException, *UNREACHABLE) as error:
            raise DeploymentError(
                f"Kubernetes does not do what was asked of {self.name!r}: {_describe_error(error)}"
            ) from error

    def _polled(self) -> Manifest | None:
        """The same as `read`; the last answer counts while the API server is away."""
        try:
            return self.read()
        except DeploymentError as error:
            cause = error.__cause__
            if isinstance(cause, ApiException) and cause.status not in TRANSIENT:
                raise
            self._tell(str(error))
            return None

    def _newest_pods(self, known: Manifest) -> list[Any]:
        """Pods of the newest revision; those of the one before go on while new ones start."""
        revision = known["spec"]["predictor"].get("annotations", {}).get(REVISION)
        try:
            pods = client.CoreV1Api(self.api).list_namespaced_pod(self.namespace, label_selector=f"{LABEL}={self.name}")
        except (ApiException, *UNREACHABLE) as error:
            self._tell(f"pods cannot be looked at: {_describe_error(error)}")
            return []
        return [
            pod
            for pod in pods.items
            if not pod.metadata.deletion_timestamp and (pod.metadata.annotations or {}).get(REVISION) == revision
        ]

    def _hopeless(self, pods: Sequence[Any]) -> Iterator[str]:
        """Containers that will not start, with the end of their logs."""
        core = client.CoreV1Api(self.api)
        for pod in pods:
            for line in _unscheduled(pod):
                self._tell(line)
            for status in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
                if reason := _failure(status):
                    yield f"{status.name} of pod {pod.metadata.name}: {reason}{self._tail(core, pod, status)}"

    def _tail(self, core: client.CoreV1Api, pod: Any, status: Any) -> str:
        try:
            said = core.read_namespaced_pod_log(
                pod.metadata.name,
                self.namespace,
                container=status.name,
                tail_lines=_TAIL_LINES,
                previous=status.restart_count > 0,
                _preload_content=False,
            ).data.decode("utf-8", "replace")
        except (ApiException, *UNREACHABLE):  # a container that never ran has none
            return ""
        return f". It last said:\n{said.strip()}" if said.strip() else ""

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            say(f"{self.name}: {line}")


def _is_ready(known: Manifest, pods: Sequence[Any]) -> bool:
    """Whether as many pods of the newest revision are ready as there must be, and KServe sends requests to them."""
    ready = [
        pod for pod in pods if any(_is_ready_condition(each.type, each.status) for each in pod.status.conditions or ())
    ]
    if len(ready) < known["spec"]["predictor"].get("minReplicas", 1):
        return False
    return any(
        _is_ready_condition(each["type"], each["status"]) for each in known.get("status", {}).get("conditions", ())
    )


def _is_ready_condition(condition: str, status: str) -> bool:
    return (condition, status) == ("Ready", "True")


def _unmet_conditions(known: Manifest) -> list[str]:
    """What is not well yet."""
    return [
        " ".join(filter(None, (each["type"], each.get("reason", ""), each.get("message", ""))))
        for each in known.get("status", {}).get("conditions", ())
        if each["status"] != "True" and (each.get("reason") or each.get("message"))
    ]


def _unscheduled(pod: Any) -> Iterator[str]:
    """Why a pod has no node yet; one may be on its way."""
    for each in pod.status.conditions or ():
        if each.type == "PodScheduled" and each.status != "True":
            yield f"pod {pod.metadata.name} has no node: {each.message or each.reason}"


def _failure(status: Any) -> str | None:
    """Why a container does not come up, if that is for people to mend."""
    waiting, ended = status.state.waiting, status.last_state.terminated
    if waiting and waiting.reason in _PERMANENT_REASONS:
        return " ".join(filter(None, (waiting.reason, waiting.message, f"exit {ended.exit_code}" if ended else "")))
    return None


def _predictor(known: Manifest) -> Manifest:
    """The predictor as it was sent last; what stands there has KServe's defaults besides."""
    sent = known["metadata"].get("annotations", {}).get(APPLIED)
    return dict(json.loads(sent) if sent else known["spec"]["predictor"])


def _to_json(predictor: Manifest) -> str:
    return json.dumps(predictor, sort_keys=True)


def _with_revision(predictor: Manifest) -> Manifest:
    """The predictor with the hash of what its pods are made of, so that a canary's pods stay when it is promoted."""
    pods = {key: value for key, value in predictor.items() if key not in _SCALING}
    revision = hashlib.sha256(_to_json(pods).encode()).hexdigest()[:16]
    return predictor | {"annotations": predictor.get("annotations", {}) | {REVISION: revision}}


def _describe_error(error: Exception) -> str:
    if isinstance(error, ApiException):
        return f"{error.status} {error.reason}: {error.body or ''}".strip()
    return str(error)

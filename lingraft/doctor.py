"""Gaps of a cluster for a recipe, before its first run: each with what to do about it.

Whatever keeps us from looking, a missing right or a lost connection, is a finding too, and the other looks go on.
"""

import base64
import copy
import http
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from kubernetes import client
from kubernetes.client.rest import ApiException
from kubernetes.utils.quantity import parse_quantity

from lingraft.config.cluster import Cluster, Profile
from lingraft.steps.launch.pods import STORAGE_KEYS, TRACKING_KEYS, resources
from lingraft.steps.launch.workload import (
    KINDS,
    TRAIN_JOB,
    UNREACHABLE,
    WorkloadKind,
    is_absent,
    required_rights,
)

_PIPELINE_ACCOUNT = "lingraft-pipeline"
_ADDRESS = TRACKING_KEYS[0]
_PREPARE_JOB = "prepare-claim"
"""Job of the manifests that mounts the claim first, and tries to write there."""
_SERVICE = re.compile(r"(?P<name>[^.]+)(\.(?P<namespace>[^.]+)(?P<svc>\.svc(\..+)?)?)?")
_ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"  # MLflow has to reach its store, and asks a silent one several times
_TIMEOUT_S = 30.0
_SHOWN = 300  # characters of an answer
_UNREACHABLE = "cannot be reached"
_LOGGED_OUT = "the API server does not know who asks"
_APPLY = "Apply an overlay: kubectl apply -k manifests/overlays/prod"


class Finding(NamedTuple):
    """Result of one look."""

    what: str
    gap: str = ""
    """Sentence on what is wrong; empty if nothing is."""
    remedy: str = ""
    may_be_well: bool = False
    """Whether the gap is only a warning, since from here nobody can tell."""

    @property
    def is_good(self) -> bool:
        """Whether nothing is to be done."""
        return not self.gap

    @property
    def is_lacking(self) -> bool:
        """Whether a run would fail, or wait for ever."""
        return not (self.is_good or self.may_be_well)


def examine(api: client.ApiClient, namespace: str, cluster: Cluster) -> Iterator[Finding]:
    """Yield everything that was looked at, in the order in which to mend it; where nobody answers us, only that.

    Runs are to take place in the namespace, and ask for what `cluster` of a recipe says.
    """
    core = client.CoreV1Api(api)
    [found] = _check_exists("namespace", namespace, _APPLY, core.read_namespace)
    yield found
    if not found.gap.startswith((_UNREACHABLE, _LOGGED_OUT)):
        yield from _Examination(api, core, namespace, cluster).findings()


def _checked(what: str, remedy: str, looks: Iterator[Finding]) -> Iterator[Finding]:
    """Yield findings up to where something keeps us from looking; `remedy` is for what is not there."""
    try:
        yield from looks
    except (ApiException, *UNREACHABLE) as error:
        if is_absent(error):
            yield Finding(what, "is not there", remedy)
        elif not isinstance(error, ApiException):
            yield Finding(what, f"{_UNREACHABLE}: {error}", "Check KUBECONFIG and the network.")
        elif error.status == http.HTTPStatus.UNAUTHORIZED:
            remedy = "Log in again: the token has expired, or is another cluster's."
            yield Finding(what, f"{_LOGGED_OUT}: {error.reason}", remedy)
        elif error.status == http.HTTPStatus.FORBIDDEN:
            yield Finding(what, f"we may not look: {error.reason}", "Ask with the rights of an administrator.")
        else:
            gap = f"the API server answers {error.status} ({error.reason})"
            yield Finding(what, gap, "Ask again; its log says why.")


def _check_exists(kind: str, name: str, remedy: str, read: Callable[..., object], *where: str) -> Iterator[Finding]:
    def look() -> Iterator[Finding]:
        read(name, *where)
        yield Finding(f"{kind} {name}")

    return _checked(f"{kind} {name}", remedy, look())


@dataclass(frozen=True)
class _Examination:
    api: client.ApiClient
    core: client.CoreV1Api
    namespace: str
    cluster: Cluster

    def findings(self) -> Iterator[Finding]:
        cluster, claim = self.cluster, f"volume claim {self.cluster.storage_claim}"
        training = {"training": cluster.training} | {str(stage): profile for stage, profile in cluster.stages.items()}
        launched = sorted({profile.launched for profile in training.values() if profile.launched})
        own = {"light": cluster.light} | ({"data": cluster.data} if cluster.data else {})
        profiles = own | ({"launcher": cluster.launcher} if launched else {}) | training
        yield from self._kinds("TrainJob" in launched)
        remedy = "Apply an overlay, or name yours in cluster.storage_claim of the recipe."
        yield from _checked(claim, remedy, self._claim(claim))
        written = f"{claim} can be written"
        yield from _checked(written, _APPLY, self._written(written))
        yield from _checked("nodes", "Add nodes to the cluster.", self._nodes(profiles))
        yield from _checked("quotas and limits", _APPLY, self._quotas(profiles))
        yield from self._named(profiles.values())
        if launched:
            what = f"{_PIPELINE_ACCOUNT} may launch steps"
            yield from _checked(what, _APPLY, self._rights(what, [KINDS[kind] for kind in launched]))
        secret = cluster.tracking_secret
        remedy = f"Create it: kubectl -n {self.namespace} create secret generic {secret} --from-literal={_ADDRESS}=..."
        yield from _checked(f"Secret {secret}", remedy, self._tracking(secret, remedy))

    def _kinds(self, together: bool) -> Iterator[Finding]:
        kinds = {
            "workflows.argoproj.io": "Install Kubeflow Pipelines, with this namespace as one of its profiles.",
            "inferenceservices.serving.kserve.io": "Install KServe 0.17 or later, to serve what is learned.",
        }
        train_job = {f"{TRAIN_JOB.plural}.{TRAIN_JOB.group}": "Install Kubeflow Trainer 2.3 or later."}
        read = client.ApiextensionsV1Api(self.api).read_custom_resource_definition
        for name, remedy in (kinds | (train_job if together else {})).items():
            yield from _check_exists("kind", name, remedy, read)
        if together:
            get = client.CustomObjectsApi(self.api).get_cluster_custom_object
            read = partial(get, TRAIN_JOB.group, TRAIN_JOB.version, "clustertrainingruntimes")
            remedy = "Apply manifests/overlays/prod/training.yaml, or name yours in cluster.runtime of the recipe."
            yield from _check_exists("training runtime", self.cluster.runtime, remedy, read)

    def _named(self, profiles: Iterable[Profile]) -> Iterator[Finding]:
        """Look for what the recipe and our manifests name: priority classes, service accounts, a Secret."""
        remedy = "Apply an overlay, or name one that `kubectl get priorityclasses` has."
        read = client.SchedulingV1Api(self.api).read_priority_class
        for name in sorted({profile.priority_class for profile in profiles if profile.priority_class}):
            yield from _check_exists("priority class", name, remedy, read)
        accounts = {_PIPELINE_ACCOUNT: f"{_APPLY}, and submit runs with that service account."}
        if own := self.cluster.service_account:
            accounts[own] = "Create it, or name another in cluster.service_account of the recipe."
        read = self.core.read_namespaced_service_account
        for name, remedy in accounts.items():
            yield from _check_exists("service account", name, remedy, read, self.namespace)
        if secret := self.cluster.storage_secret:
            remedy = f"Create it with the keys {', '.join(STORAGE_KEYS)} that your object storage needs."
            yield from _check_exists("Secret", secret, remedy, self.core.read_namespaced_secret, self.namespace)

    def _claim(self, what: str) -> Iterator[Finding]:
        claim = self.core.read_namespaced_persistent_volume_claim(self.cluster.storage_claim, self.namespace)
        gap, waits = "", False
        if claim.status.phase != "Bound":
            listed = client.StorageV1Api(self.api).list_storage_class().items
            modes = {each.metadata.name: each.volume_binding_mode for each in listed}
            name = claim.spec.storage_class_name
            gap = f"is {claim.status.phase}, of storage class {name!r}; the cluster has {sorted(modes)}"
            waits = modes.get(name) == "WaitForFirstConsumer"
        remedy = "Choose one of them in an overlay's storage.yaml; a class may wait for the first pod that mounts it."
        yield Finding(what, gap, remedy, waits)
        if self.cluster.parallel_languages > 1 and "ReadWriteMany" not in claim.spec.access_modes:
            gap = f"can be mounted on one node only ({', '.join(claim.spec.access_modes)})"
            remedy = "On a cluster of several nodes, choose a storage class that can do ReadWriteMany."
            yield Finding(f"{what} on several nodes", gap, remedy)

    def _written(self, what: str) -> Iterator[Finding]:
        """Look how the Job ended that tried: KFP's own pods cannot be given a new volume (no fsGroup)."""
        named = f"metadata.name={_PREPARE_JOB}"
        jobs = client.BatchV1Api(self.api).list_namespaced_job(self.namespace, field_selector=named).items
        volumes = [each.persistent_volume_claim for job in jobs for each in job.spec.template.spec.volumes or ()]
        mounted = [volume.claim_name for volume in volumes if volume]
        ends = [each for job in jobs for each in job.status.conditions or () if each.status == "True"]
        failures = [each.message for each in ends if each.type == "Failed"]
        gap, tried = "", self.cluster.storage_claim in mounted
        if not jobs:
            gap = f"nobody knows: there is no Job {_PREPARE_JOB}"
        elif not tried:
            gap = f"nobody knows: the Job {_PREPARE_JOB} mounts {', '.join(mounted) or 'none'}"
        elif failures:
            gap = f"the Job {_PREPARE_JOB} could not: {failures[0]}"
        elif not jobs[0].status.succeeded:
            gap = f"the Job {_PREPARE_JOB} has not ended"
        remedy = (
            f"{_APPLY}, whose Job tries, and see kubectl -n {self.namespace} logs job/{_PREPARE_JOB}. For a claim of "
            "your own, run a Job like it; KFP's pods may also be given an fsGroup (docs/operations/platform.md)."
        )
        yield Finding(what, gap, remedy, may_be_well=not (tried and failures))

    def _quotas(self, profiles: Mapping[str, Profile]) -> Iterator[Finding]:
        """Look whether the namespace could ever admit a profile's pods, if they were alone in it."""
        quotas = self.core.list_namespaced_resource_quota(self.namespace).items
        ranges = self.core.list_namespaced_limit_range(self.namespace).items
        remedy = "Ask for less in the profile, or change it (limits.yaml of the base and of your overlay)."
        for name, profile in profiles.items():
            requests: dict[str, str] = resources(profile)["requests"]
            gaps = [*_over_quotas(quotas, requests, profile.nodes), *_outside_ranges(ranges, requests)]
            yield Finding(f"quotas and limits for profile {name!r}", "; ".join(gaps), remedy)

    def _nodes(self, profiles: Mapping[str, Profile]) -> Iterator[Finding]:
        nodes = self.core.list_node().items
        for name, profile in profiles.items():
            selector = profile.node_selector.items()
            labelled = [node for node in nodes if selector <= (node.metadata.labels or {}).items()]
            obstacles = [_obstacle(node, profile) for node in labelled]
            counts = [f"{count} {obstacle}" for obstacle, count in Counter(filter(None, obstacles)).items()]
            fitting = obstacles.count("")
            gap = f"{fitting} of {len(labelled)} nodes with its labels {dict(selector) or '(any)'} could take its pod"
            grows = bool(selector) and (fitting > 0 or not labelled)
            remedy = "Tolerate the taints in the profile, check the device plugin, or ask for less."
            if grows:
                remedy = "That is well where the pool grows on demand; else check the labels, or add nodes to it."
            what = f"{'a node' if profile.nodes == 1 else f'{profile.nodes} nodes'} for profile {name!r}"
            yield Finding(what, "" if fitting >= profile.nodes else "; ".join([gap, *counts]), remedy, grows)

    def _rights(self, what: str, kinds: Sequence[WorkloadKind]) -> Iterator[Finding]:
        user = f"system:serviceaccount:{self.namespace}:{_PIPELINE_ACCOUNT}"
        reviews = client.AuthorizationV1Api(self.api)
        groups = ["system:serviceaccounts", "system:authenticated", f"system:serviceaccounts:{self.namespace}"]
        missing = []
        for right in required_rights(kinds):
            kind, _, part = right.resource.partition("/")
            asked = client.V1ResourceAttributes(
                namespace=self.namespace, group=right.group, resource=kind, subresource=part or None, verb=right.verb
            )
            spec = client.V1SubjectAccessReviewSpec(user=user, groups=groups, resource_attributes=asked)
            if not reviews.create_subject_access_review(client.V1SubjectAccessReview(spec=spec)).status.allowed:
                missing.append(str(right))
        remedy = "Apply manifests/base/launcher.yaml, and submit runs with that service account."
        yield Finding(what, f"it may not {', '.join(missing)}" if missing else "", remedy)

    def _tracking(self, secret: str, remedy: str) -> Iterator[Finding]:
        """Look whether steps are told where MLflow is, and it answers there and reaches its store."""
        data = self.core.read_namespaced_secret(secret, self.namespace).data or {}
        yield Finding(f"Secret {secret}", "" if _ADDRESS in data else f"has no key {_ADDRESS}", remedy)
        url = urlsplit(base64.b64decode(data.get(_ADDRESS, "")).decode(errors="replace"))
        service = _SERVICE.fullmatch(url.hostname or "")
        if url.scheme not in {"http", "https"} or not url.hostname:
            yield Finding("MLflow", f"cannot be asked: {secret} names no server, such as http://mlflow:5000", remedy)
        elif service and (service["svc"] or service["namespace"] in (None, self.namespace)):
            yield self._mlflow(url, service["name"], service["namespace"] or self.namespace)

    def _mlflow(self, url: SplitResult, service: str, namespace: str) -> Finding:
        """Ask by the API server's proxy with the Host header of steps: MLflow answers only to names that it knows."""
        host, path = url.netloc.rpartition("@")[2], url.path.rstrip("/")
        settings = copy.copy(self.api.configuration)
        settings.safe_chars_for_path_param, settings.retries = "/:", False
        get = client.CoreV1Api(client.ApiClient(settings, "Host", host)).connect_get_namespaced_service_proxy_with_path
        port = host.partition(":")[2] or {"http": "80", "https": "443"}[url.scheme]
        name = f"{'https:' if url.scheme == 'https' else ''}{service}:{port}"
        what = f"MLflow with its store of artifacts at {url.scheme}://{host}{path}"
        remedy = f"Look at its pods and their log; docs/operations/install.md names the Secrets that {service} needs."
        try:
            get(name, namespace, f"{path}{_ARTIFACTS}".lstrip("/"), _request_timeout=(_TIMEOUT_S, _TIMEOUT_S))
        except UNREACHABLE as error:
            remedy = "Network policies that let only steps in keep the API server out as well."
            return Finding(what, f"does not answer: {error}", remedy, may_be_well=True)
        except ApiException as error:
            text = " ".join(re.sub(r"<[^>]+>", " ", str(error.body or error.reason)).split())
            # The API server passes no name and password on.
            return Finding(what, f"answers {error.status}: {text[:_SHOWN]}", remedy, may_be_well=error.status == 401)
        return Finding(what)


def _obstacle(node: Any, profile: Profile) -> str:
    """Say why a node could never take a pod; empty if it could."""
    if node.spec.unschedulable:
        return "cordoned"
    for taint in node.spec.taints or ():
        tolerated = any(each.tolerates(taint.key, taint.value or "", taint.effect) for each in profile.tolerations)
        if not tolerated and taint.effect != "PreferNoSchedule":
            return f"with a taint that it does not tolerate ({taint.key}={taint.value or ''}:{taint.effect})"
    gives, wanted = node.status.allocatable or {}, resources(profile)["requests"]
    short = [
        f"{quantity} {resource}"
        for resource, quantity in wanted.items()
        if parse_quantity(gives.get(resource, "0")) < parse_quantity(quantity)
    ]
    return f"without {', '.join(short)}" if short else ""


def _over_quotas(quotas: Iterable[Any], requests: Mapping[str, str], pods: int) -> Iterator[str]:
    """Yield hard limits that several pods exceed; a quota with scopes is for some pods only, and does not count."""
    for quota in quotas:
        for key, hard in () if quota.spec.scopes or quota.spec.scope_selector else (quota.spec.hard or {}).items():
            asked = requests.get(key.removeprefix("requests.").removeprefix("limits."), "0")
            if parse_quantity(hard) < pods * parse_quantity(asked):
                each = f"{pods} pods ask for {asked} each" if pods > 1 else f"it asks for {asked}"
                yield f"{each}, but quota {quota.metadata.name} has {hard} {key}"


def _outside_ranges(ranges: Iterable[Any], requests: Mapping[str, str]) -> Iterator[str]:
    """Yield limits of containers and pods that a pod is outside of."""
    for each in ranges:
        for limit in each.spec.limits:
            for resource, asked in requests.items():
                least, most = (limit.min or {}).get(resource, "0"), (limit.max or {}).get(resource, asked)
                if not parse_quantity(least) <= parse_quantity(asked) <= parse_quantity(most):
                    bound = f"{least} to {most}" if resource in (limit.max or {}) else f"{least} or more"
                    yield f"it asks for {asked} {resource}, but LimitRange {each.metadata.name} has {bound}"

"""Kinds that the tests' Kubernetes API server knows, what it requires of them, and the Status of its refusals.

As Kubernetes documents it: api-conventions.md, "API concepts", and the validation and defaults of batch/v1.
"""

import datetime
import re
import uuid
from typing import Any, NamedTuple

Document = dict[str, Any]
NAMESPACE = "lingraft"
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LONGEST, _LONGEST_LABEL = 253, 63


class Kind(NamedTuple):
    """One kind of objects."""

    group: str
    version: str
    kind: str
    has_namespace: bool = True
    is_built_in: bool = True
    """Else it is a custom resource."""

    @property
    def api_version(self) -> str:
        """As objects have it."""
        return f"{self.group}/{self.version}".lstrip("/")


KINDS = {
    "pods": Kind("", "v1", "Pod"),
    "events": Kind("", "v1", "Event"),
    "secrets": Kind("", "v1", "Secret"),
    "serviceaccounts": Kind("", "v1", "ServiceAccount"),
    "resourcequotas": Kind("", "v1", "ResourceQuota"),
    "limitranges": Kind("", "v1", "LimitRange"),
    "persistentvolumeclaims": Kind("", "v1", "PersistentVolumeClaim"),
    "nodes": Kind("", "v1", "Node", has_namespace=False),
    "namespaces": Kind("", "v1", "Namespace", has_namespace=False),
    "jobs": Kind("batch", "v1", "Job"),
    "deployments": Kind("apps", "v1", "Deployment"),
    "storageclasses": Kind("storage.k8s.io", "v1", "StorageClass", has_namespace=False),
    "priorityclasses": Kind("scheduling.k8s.io", "v1", "PriorityClass", has_namespace=False),
    "subjectaccessreviews": Kind("authorization.k8s.io", "v1", "SubjectAccessReview", has_namespace=False),
    "selfsubjectaccessreviews": Kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", has_namespace=False),
    "customresourcedefinitions": Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", has_namespace=False),
    "trainjobs": Kind("trainer.kubeflow.org", "v1alpha1", "TrainJob", is_built_in=False),
    "clustertrainingruntimes": Kind(
        "trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime", has_namespace=False, is_built_in=False
    ),
    "inferenceservices": Kind("serving.kserve.io", "v1beta1", "InferenceService", is_built_in=False),
}


class RefusalError(Exception):
    """An answer with a Status in place of an object."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status: Document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": _REASONS[code],
            "code": code,
        }

    @classmethod
    def about(cls, code: int, plural: str, name: str, words: str) -> "RefusalError":
        """One that is about an object."""
        group = KINDS[plural].group
        return cls(code, f'{plural}.{group} "{name}"{words}' if group else f'{plural} "{name}"{words}')


def now(later_s: float = 0.0) -> str:
    """The time as objects have it, in whole seconds; of a deletion it is that at which the grace period ends."""
    time = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=later_s)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def completed(plural: str, one: Document, known: Document | None) -> Document:
    """An object with what the server itself writes into it; what it has written before stays."""
    kind, metadata = KINDS[plural], one["metadata"]
    one |= {"apiVersion": kind.api_version, "kind": kind.kind}
    before = known["metadata"] if known else {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
    for field in ("uid", "creationTimestamp", "deletionTimestamp", "generation"):
        if field in before:
            metadata.setdefault(field, before[field])
    if kind.has_namespace:
        metadata["namespace"] = NAMESPACE
    return one


def admit(plural: str, made: Document) -> None:
    """Refuse what cannot be created.

    Raises:
        RefusalError: it cannot be created.
    """
    kind, metadata = KINDS[plural], made.setdefault("metadata", {})
    given = made.get("apiVersion"), made.get("kind")
    if given != (kind.api_version, kind.kind) and not (kind.is_built_in and given == (None, None)):
        raise RefusalError(400, f"the object provided is unrecognized (must be of type {kind.kind}): {given}")
    name, longest = metadata.get("name", ""), _LONGEST_LABEL if plural == "jobs" else _LONGEST
    if not _NAME.fullmatch(name) or len(name) > longest:
        raise RefusalError.about(422, plural, name, " is invalid: metadata.name: a lowercase RFC 1123 subdomain")
    for label, value in metadata.get("labels", {}).items():
        if not _LABEL.fullmatch(value) or len(value) > _LONGEST_LABEL:
            raise RefusalError.about(422, plural, name, f" is invalid: metadata.labels: {label}={value!r}")
    if plural == "jobs" and made["spec"]["template"]["spec"].get("restartPolicy") not in ("OnFailure", "Never"):
        raise RefusalError.about(422, plural, name, " is invalid: spec.template.spec.restartPolicy")
    for field in ("uid", "creationTimestamp", "deletionTimestamp", "generation"):
        metadata.pop(field, None)
    made.pop("status", None)


def fill_in(job: Document) -> None:
    """Give a new Job the labels by which its pods are found."""
    own = {"controller-uid": job["metadata"]["uid"], "job-name": job["metadata"]["name"]}
    metadata = job["spec"]["template"].setdefault("metadata", {})
    labels = own | {f"batch.kubernetes.io/{label}": value for label, value in own.items()}
    metadata["labels"] = metadata.get("labels", {}) | labels
    job["status"] = {}


def require_same(plural: str, changed: Document, known: Document) -> None:
    """Refuse an update from another version than that which is there.

    Raises:
        RefusalError: it cannot be updated so.
    """
    name, version = known["metadata"]["name"], changed["metadata"].get("resourceVersion")
    if version is None and not KINDS[plural].is_built_in:
        raise RefusalError.about(422, plural, name, " is invalid: metadata.resourceVersion: must be specified")
    if version not in (None, known["metadata"]["resourceVersion"]):
        raise RefusalError.about(409, plural, name, ": the object has been modified; apply to the latest version")


def chosen(one: Document, labels: str, fields: str) -> bool:
    """Whether selectors choose an object."""
    found = one["metadata"].get("labels", {})
    pairs = [pair.partition("=") for pair in labels.split(",") if pair]
    by_label = all(label in found and value == (found[label] if equals else "") for label, equals, value in pairs)
    wanted = [pair.partition("=") for pair in fields.split(",") if pair]
    return by_label and all(one.get(field) == value for field, _, value in wanted)

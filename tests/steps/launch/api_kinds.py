"""Kinds that the tests' Kubernetes API server knows, what it requires of them, and the Status of its refusals.

As Kubernetes documents it: api-conventions.md, "API concepts", and the validation and defaults of batch/v1.
"""

import datetime
import re
import uuid
from collections.abc import Iterator, Sequence
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
    is_built_in: bool = True
    """Else it is a custom resource."""
    fields: frozenset[str] = frozenset()
    """By which field selectors may choose, beside name and namespace."""

    @property
    def api_version(self) -> str:
        """As objects have it."""
        return f"{self.group}/{self.version}".lstrip("/")


_ABOUT = ("type", "reason", "involvedObject.kind", "involvedObject.name", "involvedObject.uid")
KINDS = {
    "pods": Kind("", "v1", "Pod", fields=frozenset(("status.phase", "spec.nodeName", "spec.restartPolicy"))),
    "events": Kind("", "v1", "Event", fields=frozenset(_ABOUT)),
    "jobs": Kind("batch", "v1", "Job", fields=frozenset(("status.successful",))),
    "trainjobs": Kind("trainer.kubeflow.org", "v1alpha1", "TrainJob", is_built_in=False),
}


class RefusalError(Exception):
    """An answer with a Status in place of an object."""

    def __init__(self, code: int, message: str, reason: str = "", **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.status: Document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason or _REASONS[code],
            "code": code,
        }
        if details:
            self.status["details"] = details

    @classmethod
    def about(cls, code: int, plural: str, name: str, words: str, reason: str = "") -> "RefusalError":
        """One that is about an object."""
        group = KINDS[plural].group
        what = f"{plural}.{group}" if group else plural
        return cls(code, f'{what} "{name}"{words}', reason, name=name, group=group, kind=plural)

    @classmethod
    def invalid(cls, plural: str, name: str, faults: Sequence[tuple[str, str]]) -> "RefusalError":
        """One of an object with fields that cannot be so: all of them, each with the reason."""
        kind = KINDS[plural]
        what = ".".join(filter(None, (kind.kind, kind.group)))
        causes = [
            {"reason": f"FieldValue{words.partition(' ')[0]}", "message": words, "field": field}
            for field, words in faults
        ]
        told = [f"{field}: {words}" for field, words in faults]
        message = f'{what} "{name}" is invalid: {told[0] if len(told) == 1 else "[" + ", ".join(told) + "]"}'
        return cls(422, message, name=name, group=kind.group, kind=kind.kind, causes=causes)


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
    metadata["namespace"] = NAMESPACE
    return one


def admit(plural: str, made: Document) -> None:
    """Refuse what cannot be created, and fill in what the kind has by default.

    Raises:
        RefusalError: it cannot be created.
    """
    kind, metadata = KINDS[plural], made.setdefault("metadata", {})
    given = made.get("apiVersion"), made.get("kind")
    if given != (kind.api_version, kind.kind) and not (kind.is_built_in and given == (None, None)):
        raise RefusalError(400, f"the object provided is unrecognized (must be of type {kind.kind}): {given}")
    if metadata.get("namespace", NAMESPACE) != NAMESPACE:
        raise RefusalError(400, "the namespace of the provided object does not match the namespace sent on the request")
    if metadata.get("resourceVersion"):
        raise RefusalError(500, "resourceVersion should not be set on objects to be created")
    for label, value in metadata.get("labels", {}).items():
        if not isinstance(value, str):
            raise RefusalError(400, f"json: cannot unmarshal {value!r} into metadata.labels[{label}] of type string")
    if faults := [*_faults(plural, made)]:
        raise RefusalError.invalid(plural, metadata.get("name", ""), faults)
    for field in ("uid", "creationTimestamp", "deletionTimestamp", "generation"):
        metadata.pop(field, None)
    made.pop("status", None)


def _faults(plural: str, made: Document) -> Iterator[tuple[str, str]]:
    metadata = made["metadata"]
    name = metadata.get("name", "")
    if not name:
        yield "metadata.name", "Required value: a name is required"
        return
    longest = _LONGEST_LABEL if plural == "jobs" else _LONGEST
    if not _NAME.fullmatch(name) or len(name) > longest:
        yield "metadata.name", f"Invalid value: {name!r}: a lowercase RFC 1123 subdomain must be shorter and plainer"
    for label, value in metadata.get("labels", {}).items():
        if not _LABEL.fullmatch(value) or len(value) > _LONGEST_LABEL:
            yield "metadata.labels", f"Invalid value: {label}={value!r}: a valid label is short and plain"
    if plural == "jobs":
        spec = made["spec"]
        if "selector" in spec and not spec.get("manualSelector"):
            yield "spec.selector", "Invalid value: `selector` not auto-generated"
        if spec["template"]["spec"].get("restartPolicy") not in ("OnFailure", "Never"):
            yield "spec.template.spec.restartPolicy", 'Required value: valid values: "OnFailure", "Never"'


def fill_in(job: Document) -> None:
    """Give a new Job the labels by which its pods are found, as the server does."""
    template, name, uid = job["spec"]["template"], job["metadata"]["name"], job["metadata"]["uid"]
    labels = {"batch.kubernetes.io/job-name": name, "batch.kubernetes.io/controller-uid": uid}
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = metadata.get("labels", {}) | labels
    job["status"] = {}


def require_same(plural: str, changed: Document, known: Document) -> None:
    """Refuse an update from another version than that which is there.

    Raises:
        RefusalError: it cannot be updated so.
    """
    name, version = known["metadata"]["name"], changed["metadata"].get("resourceVersion")
    if version is None:
        words = "Invalid value: 0: must be specified for an update"
        raise RefusalError.invalid(plural, name, [("metadata.resourceVersion", words)])
    if version != known["metadata"]["resourceVersion"]:
        words = ": the object has been modified; please apply your changes to the latest version and try again"
        refusal = RefusalError.about(409, plural, name, words)
        refusal.status["message"] = f"Operation cannot be fulfilled on {refusal.status['message']}"
        raise refusal


def chosen(plural: str, one: Document, labels: str, fields: str) -> bool:
    """Whether selectors choose an object.

    Raises:
        RefusalError: objects of this kind are not chosen by that field.
    """
    found = one["metadata"].get("labels", {})
    pairs = [pair.partition("=") for pair in labels.split(",") if pair]
    by_label = all(label in found and value == (found[label] if equals else "") for label, equals, value in pairs)
    return by_label and all(_has(plural, one, pair) for pair in fields.split(",") if pair)


def _has(plural: str, one: Document, pair: str) -> bool:
    field, _, value = pair.partition("=")
    if field not in {"metadata.name", "metadata.namespace", *KINDS[plural].fields}:
        raise RefusalError(400, f"field label not supported: {field}")
    for name in field.split("."):
        one = one.get(name, {})
    return one == value

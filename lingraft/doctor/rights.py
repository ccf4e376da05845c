"""Rights of the steps that launch others."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kubernetes import client

from lingraft.doctor.findings import Finding, Looks, guarded
from lingraft.launch.workload import Kind

_PIPELINE = "lingraft-pipeline"
"""Service account of these steps."""
_WHAT = f"{_PIPELINE} may launch steps"
_REMEDY = "Apply manifests/base/launcher.yaml, and submit runs with that service account."
_GROUPS = ("system:serviceaccounts", "system:authenticated")


class Right(NamedTuple):
    """To do something with a kind of object."""

    group: str
    resource: str
    """In plural, with its part after a slash."""
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


_OF_WORKLOADS = ("create", "get", "list", "watch", "delete")
_OF_PODS = (Right("", "pods", "list"), Right("", "pods/log", "get"), Right("", "events", "list"))


def needed(kinds: Iterable[Kind]) -> list[Right]:
    """All that launching workloads of some kinds, following them and telling of their pods takes."""
    return [Right(kind.group, kind.plural, verb) for kind in kinds for verb in _OF_WORKLOADS] + [*_OF_PODS]


def rights(api: client.ApiClient, namespace: str, kinds: Iterable[Kind]) -> Iterator[Finding]:
    """Whether the pipelines' service account may launch workloads of these kinds."""
    return guarded(_WHAT, _REMEDY, _rights(api, namespace, kinds))


def _rights(api: client.ApiClient, namespace: str, kinds: Iterable[Kind]) -> Looks[None]:
    missing = [right for right in needed(kinds) if not _has(api, namespace, right)]
    yield Finding(_WHAT, f"it may not {', '.join(map(str, missing))}" if missing else "", _REMEDY)


def _has(api: client.ApiClient, namespace: str, right: Right) -> bool:
    resource, _, part = right.resource.partition("/")
    asked = client.V1ResourceAttributes(
        namespace=namespace, group=right.group, resource=resource, subresource=part or None, verb=right.verb
    )
    user, groups = f"system:serviceaccount:{namespace}:{_PIPELINE}", [*_GROUPS, f"{_GROUPS[0]}:{namespace}"]
    spec = client.V1SubjectAccessReviewSpec(user=user, groups=groups, resource_attributes=asked)
    review = client.V1SubjectAccessReview(spec=spec)
    return bool(client.AuthorizationV1Api(api).create_subject_access_review(review).status.allowed)

"""Rights of the steps that launch others, and our own to deploy endpoints."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kubernetes import client

from lingraft.deployment.manifest import GROUP, PLURAL
from lingraft.doctor.findings import Finding, Findings, check_reachable
from lingraft.steps.launch.workload import WorkloadKind

_PIPELINE = "lingraft-pipeline"
"""Service account of these steps."""
_WHAT = f"{_PIPELINE} may launch steps"
_REMEDY = "Apply manifests/base/launcher.yaml, and submit runs with that service account."
_DEPLOY = "we may deploy endpoints"
_DEPLOY_REMEDY = "Only `lingraft deploy` needs that: ask for a Role that has it, or have those deploy who may."
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
_OF_PODS = (Right("", "pods", "list"), Right("", "pods/log", "get"))
_EVENTS = Right("", "events", "list")
DEPLOY_RIGHTS = (*(Right(GROUP, PLURAL, verb) for verb in ("get", "create", "update")), *_OF_PODS)
"""All that `lingraft deploy` takes: it reads, creates and replaces a service, and tells why a pod does not start."""


def required_rights(kinds: Iterable[WorkloadKind]) -> list[Right]:
    """All that launching workloads of some kinds, following them and telling of their pods takes."""
    return [Right(kind.group, kind.plural, verb) for kind in kinds for verb in _OF_WORKLOADS] + [*_OF_PODS, _EVENTS]


def check_launch_rights(api: client.ApiClient, namespace: str, kinds: Iterable[WorkloadKind]) -> Iterator[Finding]:
    """Whether the pipelines' service account may launch workloads of these kinds."""
    return check_reachable(_WHAT, _REMEDY, _rights(api, namespace, kinds))


def _rights(api: client.ApiClient, namespace: str, kinds: Iterable[WorkloadKind]) -> Findings[None]:
    missing = [right for right in required_rights(kinds) if not _pipeline_has(api, namespace, right)]
    yield Finding(_WHAT, f"it may not {', '.join(map(str, missing))}" if missing else "", _REMEDY)


def check_own_rights(api: client.ApiClient, namespace: str) -> Iterator[Finding]:
    """Whether those who ask may deploy endpoints; where they may not, somebody else may, which is for them to tell."""
    return check_reachable(_DEPLOY, _DEPLOY_REMEDY, _own_rights(api, namespace))


def _own_rights(api: client.ApiClient, namespace: str) -> Findings[None]:
    missing = [right for right in DEPLOY_RIGHTS if not _user_has(api, namespace, right)]
    gap = f"we may not {', '.join(map(str, missing))}" if missing else ""
    yield Finding(_DEPLOY, gap, _DEPLOY_REMEDY, may_be_well=True)


def _user_has(api: client.ApiClient, namespace: str, right: Right) -> bool:
    spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=_attributes(namespace, right))
    review = client.V1SelfSubjectAccessReview(spec=spec)
    return bool(client.AuthorizationV1Api(api).create_self_subject_access_review(review).status.allowed)


def _pipeline_has(api: client.ApiClient, namespace: str, right: Right) -> bool:
    asked = _attributes(namespace, right)
    user, groups = f"system:serviceaccount:{namespace}:{_PIPELINE}", [*_GROUPS, f"{_GROUPS[0]}:{namespace}"]
    spec = client.V1SubjectAccessReviewSpec(user=user, groups=groups, resource_attributes=asked)
    review = client.V1SubjectAccessReview(spec=spec)
    return bool(client.AuthorizationV1Api(api).create_subject_access_review(review).status.allowed)


def _attributes(namespace: str, right: Right) -> client.V1ResourceAttributes:
    resource, _, part = right.resource.partition("/")
    return client.V1ResourceAttributes(
        namespace=namespace, group=right.group, resource=resource, subresource=part or None, verb=right.verb
    )

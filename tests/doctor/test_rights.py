"""Rights that launching takes: our list, what is asked of the API server, and what manifests grant."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from lingraft.config.cluster import Cluster, Profile
from lingraft.steps.launch.workload import KINDS, Right, required_rights
from tests.doctor.clinic import Clinic

LAUNCHER = Path(__file__).parents[2] / "manifests" / "base" / "launcher.yaml"


def test_the_manifests_grant_just_what_launching_takes() -> None:
    (role,) = (one for one in yaml.safe_load_all(LAUNCHER.read_text(encoding="utf-8")) if one["kind"] == "Role")
    granted = [
        Right(group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    assert sorted(granted) == sorted(required_rights(KINDS.values()))


@pytest.mark.parametrize("right", required_rights(KINDS.values()), ids=str)
def test_each_right_that_is_missing_is_named(clinic: Clinic, right: Right) -> None:
    clinic.server.allows = lambda asked: not _is(right, asked)
    gap = clinic.the_gap()
    assert gap.gap == f"it may not {right}"
    assert "launcher.yaml" in gap.remedy


def _is(right: Right, asked: Any) -> bool:
    """Whether a review of access is about a right, in the namespace."""
    resource, _, part = right.resource.partition("/")
    wanted = {"group": right.group, "resource": resource, "verb": right.verb, "namespace": "lingraft"}
    found: dict[str, str] = asked["resourceAttributes"]
    return found == wanted | ({"subresource": part} if part else {})


def _asked(clinic: Clinic) -> list[Any]:
    """What reviews of the launching account's access the doctor asked for."""
    asked: list[Any] = []

    def note(one: Any) -> bool:
        asked.append(one)
        return True

    clinic.server.allows = note
    clinic.findings()
    return asked


def test_rights_are_asked_of_the_account_that_launches_with_the_groups_that_it_is_in(clinic: Clinic) -> None:
    asked = _asked(clinic)
    assert {one["user"] for one in asked} == {"system:serviceaccount:lingraft:lingraft-pipeline"}
    assert all("system:serviceaccounts:lingraft" in one["groups"] for one in asked)


def test_only_rights_that_a_recipe_needs_are_asked_for(clinic: Clinic) -> None:
    clinic.cluster = Cluster(training=Profile(spot=True))
    resources = {one["resourceAttributes"]["resource"] for one in _asked(clinic)}
    assert "jobs" in resources
    assert "trainjobs" not in resources
    clinic.cluster = Cluster()
    assert _asked(clinic) == []

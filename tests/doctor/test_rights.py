"""Rights that launching takes: our list, what is asked of the API server, and what manifests grant."""

from pathlib import Path
from typing import Any

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


def _asked(clinic: Clinic, allowed: bool = True) -> list[Any]:
    """What reviews of access the doctor asks for, and is answered by."""
    asked: list[Any] = []

    def note(one: Any) -> bool:
        asked.append(one)
        return allowed

    clinic.server.allows = note
    clinic.findings()
    return asked


def test_every_right_is_asked_of_the_account_that_launches_and_named_where_it_is_missing(clinic: Clinic) -> None:
    asked, rights = _asked(clinic, allowed=False), required_rights(KINDS.values())
    assert {one["user"] for one in asked} == {"system:serviceaccount:lingraft:lingraft-pipeline"}
    assert all("system:serviceaccounts:lingraft" in one["groups"] for one in asked)
    attributes = [one["resourceAttributes"] for one in asked]
    assert {each["namespace"] for each in attributes} == {"lingraft"}
    found = [
        Right(each["group"], "/".join(filter(None, (each["resource"], each.get("subresource")))), each["verb"])
        for each in attributes
    ]
    assert sorted(found) == sorted(rights)
    gap = clinic.the_gap()
    assert gap.gap == f"it may not {', '.join(map(str, rights))}"
    assert "launcher.yaml" in gap.remedy


def test_only_rights_that_a_recipe_needs_are_asked_for(clinic: Clinic) -> None:
    clinic.cluster = Cluster(training=Profile(spot=True))
    resources = {one["resourceAttributes"]["resource"] for one in _asked(clinic)}
    assert "jobs" in resources
    assert "trainjobs" not in resources
    clinic.cluster = Cluster()
    assert _asked(clinic) == []

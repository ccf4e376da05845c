"""From local to prod: what cannot be updated in place, and what prod does not have, is deleted first."""

import re
from typing import Any

from tests.manifests.conftest import MANIFESTS, built

Document = dict[str, Any]
PAGE = MANIFESTS.parent / "docs" / "operations" / "README.md"
IMMUTABLE = {
    "PersistentVolumeClaim": lambda spec: (spec["accessModes"], spec.get("storageClassName")),
    "Job": lambda spec: spec["template"],
    "StatefulSet": lambda spec: {**spec, "template": None, "replicas": None},
}
"""Fields that the API server does not let anybody change, by kind."""


def _objects(overlay: str) -> dict[tuple[str, str], Document]:
    return {(d["kind"], d["metadata"]["name"]): d for d in built(overlay)}


def _deleted() -> set[tuple[str, str]]:
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## Move from local to prod\n")
    commands = re.findall(r"^kubectl -n lingraft delete (\S+) (.+)$", section.partition("\n## ")[0], re.MULTILINE)
    return {(kind, name) for kind, names in commands for name in names.split()}


def test_what_cannot_be_changed_is_deleted() -> None:
    local, prod = _objects("local"), _objects("prod")
    changed = {
        (kind, name)
        for (kind, name), document in local.items()
        if kind in IMMUTABLE and (kind, name) in prod
        if IMMUTABLE[kind](document["spec"]) != IMMUTABLE[kind](prod[kind, name]["spec"])
    }
    short = {"PersistentVolumeClaim": "pvc"}
    assert changed == {("PersistentVolumeClaim", "lingraft-data"), ("Job", "prepare-claim")}
    assert {(short.get(kind, kind.lower()), name) for kind, name in changed} <= _deleted()


def test_what_prod_does_not_have_and_would_go_on_is_deleted() -> None:
    left = _objects("local").keys() - _objects("prod").keys()
    short = {"PersistentVolumeClaim": "pvc"}
    kinds = {"PersistentVolumeClaim", "StatefulSet", "Service"}
    assert {(short.get(kind, kind.lower()), name) for kind, name in left if kind in kinds} <= _deleted()


def test_what_uses_a_claim_is_deleted_before_it() -> None:
    """A claim that a pod mounts stays until the pod has gone."""
    holders = {
        ("job", "prepare-claim"),
        ("cronjob", "clean-claim"),
        ("deployment", "mlflow"),
        ("statefulset", "postgres"),
    }
    assert holders <= _deleted()
    assert ("pvc", "data-postgres-0") in _deleted()

"""What `damage` finds in a real store: tags that are not those of the artifact."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient

from lingraft import tracking
from lingraft.errors import ArtifactError
from lingraft.tracking.promotion.upkeep import find_damage
from lingraft.tracking.versions import version_of, versions
from tests.tracking.promotion.prepared import Prepared, begins_with
from tests.tracking.promotion.project import Project, lingraft
from tests.tracking_stores import quiet

pytestmark = [quiet, begins_with(Prepared.FILLED)]
CHANGED = [
    ("embeddings", "aligned_with", "b2" * 32),
    ("embeddings", "kind", "mini"),
    ("embeddings", "tokenizer_hash", None),
    ("bundle", "task", "mood"),
    ("bundle", "data.embeddings-tr", "not of the artifact"),
    ("bundle", "fingerprint.de", "b2" * 32),
    ("bundle", "parity.de", "0.0"),
]
"""A model, its tag, and what somebody makes of it; None removes it."""


def problem(project: Project, model: str) -> str | None:
    with tracking.retrying_client() as client:
        return find_damage(client, version_of(client, model, 1), versions(client, project.recipe.name))


def set_tag(model: str, tag: str, value: str | None) -> str | None:
    mlflow_client = MlflowClient()
    before = mlflow_client.get_model_version(model, "1").tags.get(tag)
    if value is None:
        mlflow_client.delete_model_version_tag(model, "1", tag)
    else:
        mlflow_client.set_model_version_tag(model, "1", tag, value)
    return before


def test_tags_that_somebody_changed_added_or_removed_are_found(project: Project) -> None:
    models = {"embeddings": project.embeddings, "bundle": project.bundle}
    assert [problem(project, model) for model in models.values()] == [None, None]
    for name, tag, value in CHANGED:
        before = set_tag(models[name], tag, value)
        found = str(problem(project, models[name]))
        words = "one of kind mini is needed" if tag == "kind" else f"its tag {tag!r} says {value or 'nothing'}, and"
        assert words in found, (tag, found)
        set_tag(models[name], tag, before)
    assert [problem(project, model) for model in models.values()] == [None, None]


def test_a_damaged_version_is_repaired_as_the_message_says(project: Project, tmp_path: Path) -> None:
    """Its manifest and a file were edited in the store, and tags in the database; it stays champion throughout."""
    lingraft("pull", project.bundle, "--out", tmp_path / "backup")
    model_id = MlflowClient().get_model_version(project.bundle, "1").source.removeprefix("models:/")
    stored = project.folder.parent / "artifacts" / "models" / model_id / "artifacts"
    for damaged in (stored / "manifest.json", stored / "vocabulary.safetensors"):
        damaged.write_bytes(damaged.read_bytes().replace(b'"a"', b'"c"').replace(b"\0\0", b"\0\1"))
    set_tag(project.bundle, "data.embeddings-de", "b2" * 32)
    set_tag(project.bundle, "parity.tr", "0.0")
    with pytest.raises(ArtifactError) as caught:
        lingraft("verify", project.bundle, 1)
    [advice] = re.findall(r"`lingraft registry (restore MODEL VERSION FOLDER)`", str(caught.value))
    given = {"MODEL": project.bundle, "VERSION": 1, "FOLDER": tmp_path / "backup"}
    assert "is whole again" in lingraft(*(given.get(word, word) for word in advice.split()))
    assert lingraft("verify", project.bundle, 1).startswith("ok")
    assert project.champion(project.bundle) == 1
    with pytest.raises(
        ArtifactError, match=r"but version 1 of .* was registered with \w+. Give a folder with the same"
    ):
        lingraft("restore", project.embeddings, 1, tmp_path / "backup")


def test_tags_tell_the_parity_of_the_stored_files_and_not_of_a_later_export_of_the_same(project: Project) -> None:
    tags = MlflowClient().get_model_version(project.bundle, "1").tags
    hashes = {name.removeprefix("data."): mark for name, mark in tags.items() if name.startswith("data.")}
    later = {"fp32": {each: {"difference": 2e-6} for each in ("en", "de")}}
    elsewhere = replace(project, folder=project.folder / "elsewhere")
    assert elsewhere.register_bundle(6.0, hashes, parity=later) == 1
    assert MlflowClient().get_model_version(project.bundle, "1").tags["parity.de"] == "1e-06"
    assert problem(project, project.bundle) is None

"""The commands on a real store, as a person types them: what they print, and what they leave."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST, Kind, read_manifest
from lingraft.bundle.language_part import language_fingerprint
from lingraft.errors import ArtifactError, LingraftError, PromotionError
from tests.tracking.promotion.prepared import Prepared, opened
from tests.tracking.promotion.project import Project, lingraft
from tests.tracking_stores import quiet

pytestmark = [quiet, pytest.mark.integration]


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Project]:
    """A primary, two versions of German of which the second is champion, and a bundle of it."""
    with opened(Prepared.FILLED, tmp_path / "filled") as project:
        yield project


def test_a_project_is_listed_with_its_champions_and_what_does_not_fit(filled: Project, tmp_path: Path) -> None:
    listed = lingraft("show")
    [champion] = [line for line in listed.splitlines() if f"{filled.embeddings} " in line and "@champion" in line]
    assert "  2  " in champion
    assert "not aligned" not in listed
    number, _ = filled.register_primary(9.0)
    left = f"champions of another primary, to be made again: {filled.bundle}, {filled.embeddings}"
    assert left in lingraft("promote", filled.primary, number)
    assert lingraft("show").count("not aligned with the primary") == 4
    Project.begin("second", tmp_path / "second").register_primary()
    with pytest.raises(LingraftError, match=r"not one project only.*--project"):
        lingraft("show")
    with pytest.raises(LingraftError, match="no project 'absent'"):
        lingraft("show", "--project", "absent")


def test_a_version_shows_its_card_tags_and_verdict(filled: Project) -> None:
    shown = lingraft("show", filled.embeddings)
    for part in ("**Embeddings in `de`**", "cost_gpu_hours: 1", "cost_flops: 1.08e+17", "data.blocks: b1", "depth: 2"):
        assert part in shown
    for part in ("system: MINIJOINT", "tokenizer_hash: t1", f"project: {filled.recipe.name}"):
        assert part in shown
    assert "passed, asked by a test at " in shown
    assert "champion then: 1\npass  aligned" in shown


def test_labels_that_somebody_changed_in_the_store_do_not_arrive_until_they_are_registered_again(
    filled: Project, tmp_path: Path
) -> None:
    version = MlflowClient().get_model_version(filled.bundle, "1")
    backup = tracking.fetch(filled.bundle, Kind.BUNDLE, tmp_path / "backup")
    stored = store_of(filled, filled.bundle, "1") / MANIFEST
    manifest = json.loads(stored.read_text())
    manifest["details"]["labels"].reverse()
    stored.write_text(json.dumps(manifest))
    with pytest.raises(
        ArtifactError, match=rf"version 1 of '{filled.bundle}' at .* has fingerprint \w+ in the store.*Delete"
    ):
        lingraft("pull", filled.bundle, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    MlflowClient().delete_model_version(filled.bundle, "1")
    assert filled.register(filled.bundle, backup) == 2
    lingraft("pull", filled.bundle, 2, "--out", tmp_path / "out")
    assert MlflowClient().get_model_version(filled.bundle, "2").source == version.source


def test_tags_of_a_bundle_hold_a_fingerprint_for_each_language(filled: Project) -> None:
    tags = MlflowClient().get_model_version(filled.bundle, "1").tags
    manifest = read_manifest(store_of(filled, filled.bundle, "1"))
    marks = {tag: language_fingerprint(manifest, tag) for tag in ("en", "de")}
    assert {tag: tags[f"fingerprint.{tag}"] for tag in marks} == marks
    [found] = MlflowClient().search_model_versions(f"tags.`fingerprint.de` = '{marks['de']}'")
    assert (found.name, found.version) == (filled.bundle, 1)


def store_of(project: Project, model: str, version: str) -> Path:
    model_id = MlflowClient().get_model_version(model, version).source.removeprefix("models:/")
    return project.folder.parent / "artifacts" / "models" / model_id / "artifacts"


def test_a_version_is_pulled_refused_with_reasons_and_taken_back(filled: Project, tmp_path: Path) -> None:
    lingraft("pull", filled.embeddings, "--out", tmp_path / "champion")
    lingraft("pull", filled.embeddings, 1, "--out", tmp_path / "first")
    for name, value in (("champion", "2.0"), ("first", "1.0")):
        original = Artifact.load(filled.folder / f"embeddings-{value}", Kind.EMBEDDINGS)
        assert Artifact.load(tmp_path / name, Kind.EMBEDDINGS).manifest == original.manifest
    with pytest.raises(PromotionError, match=r"version 1 of .* is not promoted. masked accuracy"):
        lingraft("promote", filled.embeddings, 1, "--by", "alice")
    assert "refused, asked by alice" in lingraft("show", filled.embeddings, 1)
    assert "would be champion (before: 2)" in lingraft("promote", filled.embeddings, "--previous", "--dry-run")
    with pytest.raises(PromotionError, match="or --previous to roll back"):
        lingraft("promote", filled.embeddings)
    assert filled.champion(filled.embeddings) == 2
    assert "is champion (before: 2)" in lingraft("promote", filled.embeddings, "--previous", "--by", "alice")
    assert filled.champion(filled.embeddings) == 1
    assert "refused, asked by alice" in lingraft("show", filled.embeddings, 2)

"""The commands on a real store, as a person types them: what they print, and what they leave."""

import json
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
import yaml
from mlflow import MlflowClient
from typer.testing import CliRunner

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import MANIFEST, Kind, read_manifest
from lingraft.bundle.language_part import language_fingerprint
from lingraft.cli import app
from lingraft.errors import ArtifactError, LingraftError, PromotionError
from lingraft.tracking.versions import download_manifest, version_of
from tests.tracking.promotion.prepared import Prepared, opened
from tests.tracking.promotion.project import Project, lingraft
from tests.tracking_stores import quiet

pytestmark = [quiet, pytest.mark.integration]


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Project]:
    """A primary, two versions of German of which the second is champion, and a bundle of it."""
    with opened(Prepared.FILLED, tmp_path / "filled") as project:
        yield project


def test_a_project_is_listed_with_its_champions_and_what_does_not_fit(filled: Project) -> None:
    listed = lingraft("ls", "--project", filled.recipe.name)
    [champion] = [line for line in listed.splitlines() if f"{filled.embeddings} " in line and "@champion" in line]
    assert "  2  " in champion
    assert "not aligned" not in listed
    number, _ = filled.register_primary(9.0)
    promoted = lingraft("promote", filled.primary, number)
    assert "languages to adapt again: de" in promoted
    assert lingraft("ls", "--project", filled.recipe.name).count("not aligned with the primary") == 4


def test_a_version_shows_its_card_tags_decisions_and_what_mlflows_pages_draw(filled: Project) -> None:
    shown = lingraft("show", filled.embeddings)
    for part in ("# " + filled.embeddings, "cost_gpu_hours: 1", "cost_flops: 1.08e+17", "data.blocks: b1", "depth: 2"):
        assert part in shown
    for part in ("system: MINIJOINT", "tokenizer_hash: t1", f"project: {filled.recipe.name}"):
        assert part in shown
    assert "promote none -> 1: done, asked by a test" in shown
    assert "promote 1 -> 2: done" in shown

    client = MlflowClient()
    model, version = (
        client.get_registered_model(filled.embeddings),
        client.get_model_version(filled.embeddings, "2"),
    )
    assert model.description.startswith("Token embeddings of one language")
    assert version.description.startswith(f"# {filled.embeddings}\n\n|")
    signature = yaml.safe_load((store_of(filled, filled.embeddings, "2") / "MLmodel").read_text())["signature"]
    assert '"name": "tokens"' in signature["inputs"]
    assert '"name": "vectors"' in signature["outputs"]
    run = client.get_run(version.run_id)
    assert [(each.dataset.name, each.dataset.digest) for each in run.inputs.dataset_inputs] == [("blocks-de", "b1")]
    assert [f"models:/{each.model_id}" for each in run.outputs.model_outputs] == [version.source]
    assert [each.path for each in client.list_artifacts(run.info.run_id, "recipes")] == [
        f"recipes/{filled.embeddings}.json"
    ]


def test_labels_that_somebody_changed_in_the_store_are_found_and_do_not_arrive(filled: Project, tmp_path: Path) -> None:
    model = f"{filled.recipe.name}-bundle-topic"
    stored = store_of(filled, model, "1") / MANIFEST
    whole = stored.read_text()
    manifest = json.loads(whole)
    manifest["details"]["labels"].reverse()
    stored.write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match=r"1 thing is wrong.*\n.*has fingerprint .* its manifest was edited"):
        lingraft("verify", "--project", filled.recipe.name)
    with pytest.raises(ArtifactError, match=rf"version 1 of '{model}' at .* has fingerprint \w+ in the store"):
        lingraft("pull", model, "--out", tmp_path / "out")
    with pytest.raises(ArtifactError, match=rf"'champion' of '{model}' at .* has fingerprint \w+ in the store"):
        tracking.fetch(model, Kind.BUNDLE, tmp_path / "out")
    with (
        tracking.retrying_client() as client,
        pytest.raises(ArtifactError, match=rf"version 1 of '{model}' has fingerprint \w+ in the store"),
    ):
        download_manifest(client, version_of(client, model, 1), Kind.BUNDLE)
    assert not (tmp_path / "out").exists()
    stored.write_text(whole)
    lingraft("pull", model, "--out", tmp_path / "out")


def test_what_mlflow_downloads_is_verified(filled: Project, tmp_path: Path) -> None:
    version = MlflowClient().get_model_version(filled.embeddings, "2")
    folder = mlflow.artifacts.download_artifacts(f"models:/{filled.embeddings}/2", dst_path=str(tmp_path / "out"))
    assert {path.name for path in Path(folder).iterdir()} > {MANIFEST, "MLmodel"}
    command = ["verify", folder, "--fingerprint", version.tags["fingerprint"]]
    told = CliRunner().invoke(app, command, catch_exceptions=False).stdout
    assert told.startswith(f"{folder} is whole, of the fingerprint expected")


def test_tags_of_a_bundle_hold_a_fingerprint_for_each_language(filled: Project) -> None:
    model = f"{filled.recipe.name}-bundle-topic"
    tags, manifest = MlflowClient().get_model_version(model, "1").tags, read_manifest(store_of(filled, model, "1"))
    marks = {tag: language_fingerprint(manifest, tag) for tag in ("en", "de")}
    assert {tag: tags[f"fingerprint.{tag}"] for tag in marks} == marks
    [found] = MlflowClient().search_model_versions(f"tags.`fingerprint.de` = '{marks['de']}'")
    assert (found.name, found.version) == (model, 1)


def store_of(project: Project, model: str, version: str) -> Path:
    model_id = MlflowClient().get_model_version(model, version).source.removeprefix("models:/")
    return project.folder.parent / "artifacts" / "models" / model_id / "artifacts"


def test_an_alias_that_somebody_moved_without_a_decision_is_found(filled: Project) -> None:
    MlflowClient().set_registered_model_alias(filled.embeddings, "champion", "1")
    with pytest.raises(ArtifactError, match="is version 1, but by the record it is 2: the alias was moved without"):
        lingraft("verify", "--project", filled.recipe.name)


def test_only_what_nothing_needs_is_cleared_away(filled: Project) -> None:
    name, mark = filled.recipe.name, Artifact.load(filled.folder / "primary-1.0", Kind.PRIMARY).fingerprint
    loser = filled.register_embeddings(mark, 3.0, masked=0.1)
    assert lingraft("gc", "--project", name) == "nothing to delete\n"
    listed = lingraft("gc", "--project", name, "--days", 0)
    # The champion before is what a rollback returns to, and the task is a part of the bundle that is champion.
    assert [line.split(" [")[0] for line in listed.splitlines()] == [
        f"would delete version {loser} of '{filled.embeddings}'"
    ]
    assert str(loser) in lingraft("ls", "--project", name)
    lingraft("gc", "--project", name, "--days", 0, "--yes")
    left = MlflowClient().search_model_versions(f"name='{filled.embeddings}'")
    assert sorted(each.version for each in left) == [1, 2]
    assert "DAMAGED" not in lingraft("verify", "--project", name)


def test_the_tasks_of_the_primary_before_are_kept_for_a_rollback(filled: Project) -> None:
    mark = Artifact.load(filled.folder / "primary-1.0", Kind.PRIMARY).fingerprint
    for _ in range(2):
        filled.register_task(mark, "mood")
    number, _ = filled.register_primary(9.0)
    assert "champions of another primary: " in lingraft("promote", filled.primary, number)
    listed = lingraft("gc", "--project", filled.recipe.name, "--days", 0)
    # The first of two, which no pipeline fetches any more.
    assert [line.split(" [")[0] for line in listed.splitlines()] == [
        f"would delete version 1 of '{filled.recipe.name}-task-mood'"
    ]


def test_a_project_is_to_be_named_where_there_are_several(filled: Project, tmp_path: Path) -> None:
    Project.begin("second", tmp_path / "second").register_primary()
    with pytest.raises(LingraftError, match=r"not one project only.*--project"):
        lingraft("ls")
    with pytest.raises(LingraftError, match="no project 'absent'"):
        lingraft("ls", "--project", "absent")


def test_a_version_is_pulled_refused_with_reasons_and_taken_back(filled: Project, tmp_path: Path) -> None:
    lingraft("pull", filled.embeddings, "--out", tmp_path / "champion")
    lingraft("pull", filled.embeddings, 1, "--out", tmp_path / "first")
    for name, value in (("champion", "2.0"), ("first", "1.0")):
        original = Artifact.load(filled.folder / f"embeddings-{value}", Kind.EMBEDDINGS)
        assert Artifact.load(tmp_path / name, Kind.EMBEDDINGS).manifest == original.manifest
    with pytest.raises(PromotionError, match=r"version 1 of .* is not promoted. masked accuracy"):
        lingraft("promote", filled.embeddings, 1, "--by", "alice")
    assert "promote 2 -> 1: refused, asked by alice" in lingraft("show", filled.embeddings)
    assert "would be 1 (before: 2)" in lingraft("rollback", filled.embeddings, "--dry-run")
    assert filled.champion(filled.embeddings) == 2
    lingraft("rollback", filled.embeddings, "--by", "alice")
    assert filled.champion(filled.embeddings) == 1
    assert "rollback 2 -> 1: done, asked by alice" in lingraft("show", filled.embeddings)

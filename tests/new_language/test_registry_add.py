"""`lingraft registry add`: what `lingraft add-language` left enters a real registry, its gate, and its bundles."""

from pathlib import Path

import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind, read_manifest
from lingraft.bundle.format import bundle_examples
from lingraft.cli import app
from lingraft.errors import ArtifactError, NotRegisteredError, PromotionError
from lingraft.new_language.summary import AddedLanguage
from lingraft.steps import data, source
from lingraft.tasks.dev_score import dev_score_and_seed
from tests.new_language.given import RECIPE, out_of
from tests.steps import conftest as steps
from tests.steps.conftest import Registered
from tests.tracking_stores import quiet, sqlite_store
from tests.workshop import Workshop

pytestmark = quiet
registered = steps.registered


def add(*arguments: object) -> str:
    return CliRunner().invoke(app, ["registry", "add", *map(str, arguments)], catch_exceptions=False).stdout


def tagged(**wanted: str) -> dict[str, str]:
    found = MlflowClient().search_model_versions(" and ".join(f"tags.`{key}` = '{it}'" for key, it in wanted.items()))
    [tags] = {str(sorted(each.tags.items())): each.tags for each in found if "kind" in each.tags}.values()
    return dict(tags)


def test_an_added_language_becomes_champion_and_part_of_the_bundle(
    registered: Registered, added: AddedLanguage, tmp_path: Path
) -> None:
    printed = add(out_of(added), "--recipe", RECIPE, "--by", "alice")
    assert "version 1 of 'tiny-embeddings-tr' is champion" in printed
    assert "version 1 of 'tiny-bundle-topic' is champion" in printed
    assert "to serve it: lingraft registry pull tiny-bundle-topic --out DIR" in printed
    assert tracking.tags_of("tiny-bundle-topic")["languages"] == "en,tr"
    assert "asked by alice" in CliRunner().invoke(app, ["registry", "show", "tiny-embeddings-tr"]).stdout
    serving = registered.shop.recipe.model_copy(update={"serve_primary": True}).to_json()
    run, embeddings = registered.begin(tmp_path / "run"), [out_of(added) / "embeddings"]
    registered.bundle(run, embeddings, tmp_path / "bundle", "primary", serving)
    again = add(out_of(added), "--recipe", RECIPE)
    assert "version 1 of 'tiny-bundle-topic' is champion" in again
    assert "version 1 of 'tiny-bundle-primary' is champion" in again  # as it was, with the recipe's examples
    assert bundle_examples(tracking.fetch("tiny-bundle-primary", Kind.BUNDLE, tmp_path / "served").manifest)

    # From the bundle to the text by tags alone.
    bundle = tracking.tags_of("tiny-bundle-topic")
    embeddings = tagged(fingerprint=bundle["data.embeddings-tr"])
    text, blocks = (Artifact.load(out_of(added) / kind, kind) for kind in (Kind.TEXT, Kind.BLOCKS))
    assert (embeddings["data.text"], embeddings["data.blocks"]) == (text.fingerprint, blocks.fingerprint)
    assert embeddings["data.documents"] == text.manifest.data_hashes["documents"]
    pieces = Artifact.load(out_of(added) / "tokenizer", Kind.TOKENIZER)
    assert embeddings["tokenizer_hash"] == pieces.manifest.tokenizer_hash
    english = Artifact.load(registered.shop.texts["en"], Kind.TEXT)
    for name in ("primary", "task"):
        tags = tagged(fingerprint=bundle[f"data.{name}"])
        assert (tags["data.text"], tags["data.documents"]) == (
            english.fingerprint,
            english.manifest.data_hashes["documents"],
        )
        assert "tokenizer_hash" in tags


def test_a_run_that_breaks_off_is_closed_as_failed(registered: Registered, added: AddedLanguage) -> None:
    """A bundle needs the primary, which comes damaged from the store."""
    version = MlflowClient().get_model_version_by_alias("tiny-primary", tracking.CHAMPION)
    model_id = str(version.source).removeprefix("models:/")
    [stored] = registered.folder.glob(f"artifacts/models/{model_id}/artifacts/manifest.json")
    whole = stored.read_bytes()
    stored.write_bytes(whole.replace(b'"cost"', b'"lost"'))
    try:
        with pytest.raises(ArtifactError, match="tiny-primary"):
            add(out_of(added), "--recipe", RECIPE)
    finally:
        stored.write_bytes(whole)
    experiment = MlflowClient().get_experiment_by_name("tiny").experiment_id
    [run] = MlflowClient().search_runs([experiment], "tags.pipeline = 'add-language'", max_results=1)
    stages = MlflowClient().search_runs([experiment], f"tags.`mlflow.parentRunId` = '{run.info.run_id}'")
    assert run.info.status == "FAILED"
    assert sorted(each.info.status for each in stages) == ["FAILED", "FINISHED"][: len(stages)]


def test_what_the_gate_refuses_stays_a_challenger_and_out_of_the_bundle(
    registered: Registered, added: AddedLanguage, tmp_path: Path
) -> None:
    other = registered.shop.recipe.model_copy(update={"name": "strict"})
    run = tmp_path / "run"
    data.open_run(other.to_json(), "source", run)
    tasks = [*registered.shop.tasks.values()]
    source.register_source(other.to_json(), run, registered.shop.primary, tasks, registered.evaluation)
    with pytest.raises(PromotionError, match=r"projects \['strict', 'tiny'\] have primary .* Name one with --project"):
        add(out_of(added))
    strict = tmp_path / "strict.toml"
    strict.write_text(RECIPE.read_text().replace("margin = -0.5", "margin = 0.9"))
    with pytest.raises(PromotionError, match=r"registered, and not promoted: version 1 of 'strict-embeddings-tr'"):
        add(out_of(added), "--project", "strict", "--recipe", strict)
    assert [each.name for each in MlflowClient().search_registered_models() if "strict-bundle" in each.name] == []


def test_a_language_of_a_primary_that_is_not_registered_is_refused(added: AddedLanguage, tmp_path: Path) -> None:
    with sqlite_store(tmp_path), pytest.raises(NotRegisteredError, match=r"of the projects \[\], none has it"):
        add(out_of(added))


def test_a_primary_and_its_tasks_enter_a_registry_that_has_nothing(workshop: Workshop, tmp_path: Path) -> None:
    other, best = sorted(workshop.tasks.values(), key=lambda folder: dev_score_and_seed(read_manifest(folder).details))
    with sqlite_store(tmp_path):
        with pytest.raises(NotRegisteredError, match="Add that primary first"):
            add(best)
        with pytest.raises(PromotionError, match="Say which project it is for: --project NAME"):
            add(workshop.primary)
        assert "version 1 of 'own-primary' is registered; version 1" in add(workshop.primary, "--project", "own")
        add(best)
        assert "`lingraft registry promote own-task-topic 2` makes it champion" in add(other)
        assert tracking.tags_of("own-task-topic")["fingerprint"] == Artifact.load(best, Kind.TASK).fingerprint


def test_a_folder_that_add_language_did_not_leave_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="has no embeddings and no evaluation"):
        add(tmp_path)
    with pytest.raises(ArtifactError, match=r"artifact of kind text. Give a primary, a task, or what"):
        add(workshop.texts["de"])

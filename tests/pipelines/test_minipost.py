"""A search over MINIPOST's depths as a pipeline, and the way of what it chose into the language pipeline."""

import os
from pathlib import Path

import pytest
from mlflow import MlflowClient

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.config.training import MiniBuilding
from lingraft.search.outcome import PAGE_FILE
from lingraft.stages import pretrain
from lingraft.stages.results import SearchResult, load_search
from lingraft.training.schedule import ignore_metrics
from pipelines import build, local
from tests.pipelines.finished import Finished
from tests.steps.sources import register
from tests.tracking_stores import quiet
from tests.workshop import Workshop, changed

pytestmark = [quiet, pytest.mark.nightly]
OWN_DEPTH, SEARCHED = 3, (1, 2)


def _recipe(shop: Workshop) -> Recipe:
    """Its own depth is none of those that are searched."""
    building = MiniBuilding(steps=4, batch_blocks=8, learning_rate=3e-3, fresh_layers=1)
    changes = {"system": System.MINIPOST, "mini": building, "tasks": (), "targets": ("de",)}
    recipe = changed(shop.recipe.model_copy(update=changes), "encoder", layers=4, mlm_heads=(4,))
    recipe = changed(recipe, "pretraining", steps=4, warmup_steps=0)
    recipe = changed(recipe, "search", depths=SEARCHED, steps_at_depth=8, looks=4, workers=2)
    return Recipe.parse(changed(recipe, "adaptation", depth=OWN_DEPTH).to_json())


def _minis(out: Path) -> dict[Path, int]:
    """When each mini-model was made."""
    return {path: path.stat().st_mtime_ns for path in out.glob("results/mini-*/result/manifest.json")}


def _found(finished: Finished) -> tuple[SearchResult, Path]:
    (made,) = finished.made("depth-search", "search-depth", "search")
    return load_search(Path(made["uri"])), Path(made["uri"])


def test_each_depth_is_built_once_and_counted_and_the_chosen_one_is_taken_by_the_languages(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, out, primary = _recipe(workshop), tmp_path / "out", tmp_path / "primary"
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    local.set_up(out)
    pretrain.pretrain(recipe, workshop.blocks["en"], workshop.tokenizers["en"], primary, ignore_metrics)
    register(workshop, recipe, primary, tmp_path / "source")
    assert len(_minis(out)) == 1
    local.run(build.depth_search_pipeline(recipe), out)
    finished, built = Finished(out, recipe, os.environ["MLFLOW_TRACKING_URI"]), _minis(out)
    assert len(built) == 1 + len(SEARCHED)

    found, folder = _found(finished)
    paid = sum(cost.flops for cost in found.building.values())
    assert b"CREATE TABLE trials" in (out / "optuna.db").read_bytes()
    assert {*found.building} == {*SEARCHED} == {trial.depth for trial in found.trials}
    assert found.flops == pytest.approx(paid + sum(trial.flops for trial in found.trials))
    logged = finished.stage("depth-search", "search-depth")
    assert float(logged.data.tags["cost_flops"]) == pytest.approx(found.flops)
    assert logged.data.metrics["chosen_depth"] == found.chosen
    _has_its_page(finished, folder, logged.info.run_id, tmp_path)
    tags = finished.champion("primary").tags
    assert tags["mini_depth.de"] == str(found.chosen)
    assert "depth.de" not in tags  # a mini-model of that depth is to be registered first

    chosen = recipe.over(found.chosen)  # docs/operations/README.md: set adaptation.depth, and run `source` again
    register(workshop, chosen, primary, tmp_path / "source again")
    local.run(build.language_pipeline(chosen), out)
    assert _minis(out) == built
    assert finished.champion(f"mini-minipost-{found.chosen}").tags["depth"] == str(found.chosen)
    tags = finished.champion("embeddings-de").tags
    assert (tags["depth"], tags["system"]) == (str(found.chosen), "MINIPOST")


def _has_its_page(finished: Finished, folder: Path, run: str, place: Path) -> None:
    page = (folder / PAGE_FILE).read_text(encoding="utf-8")
    assert "| trial | layers |" in page
    (shown,) = finished.made("depth-search", "search-depth", "page")
    assert Path(shown["uri"]).read_text(encoding="utf-8") == page
    kept = MlflowClient(finished.uri).download_artifacts(run, "search", str(place))
    assert Artifact.load(Path(kept), Kind.SEARCH).fingerprint == Artifact.load(folder, Kind.SEARCH).fingerprint
    assert {"curves.png", PAGE_FILE} <= {path.name for path in Path(kept).iterdir()}

"""The steps of a depth search: workers share its trials, and the registered primary is tagged with the depth."""

from pathlib import Path

import pytest

from lingraft import tracking
from lingraft.artifacts.names import primary_name
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.config.training import MiniBuilding
from lingraft.jobs.training import InitialisationJob
from lingraft.stages import pretrain
from lingraft.stages.results import SearchResult, load_search
from lingraft.steps import data, search
from lingraft.steps.run_job import run_job
from lingraft.training.schedule import ignore_metrics
from tests.prometheus import asked, port_for_metrics
from tests.steps.conftest import Registered
from tests.steps.sources import register
from tests.tracking_stores import quiet, sqlite_store
from tests.workshop import Workshop, changed

pytestmark = quiet
BUILDING = MiniBuilding(steps=2, batch_blocks=4, learning_rate=3e-3, fresh_layers=1)


def _registered(shop: Workshop, recipe: Recipe, folder: Path) -> Path:
    """A primary of the recipe's system, as the champion of the store."""
    primary, short = folder / "primary", changed(recipe, "pretraining", steps=2, warmup_steps=0)
    pretrain.pretrain(short, shop.blocks["en"], shop.tokenizers["en"], primary, ignore_metrics)
    register(shop, recipe, primary, folder / "source")
    return primary


def _searched(shop: Workshop, recipe: Recipe, primary: Path, folder: Path) -> SearchResult:
    """By a worker, and then the step that concludes."""
    language, raw, run = recipe.require_search().language, recipe.to_json(), folder / "run"
    folder.mkdir()
    data.open_run(raw, "depth-search", run)
    common = {
        "recipe": raw,
        "primary": primary,
        "blocks": shop.blocks[language],
        "tokenizer": shop.tokenizers[language],
    }
    run_job(InitialisationJob(out=folder / "initial", **common), run)
    common |= {
        "source_blocks": shop.blocks["en"] if recipe.builds_mini else None,
        "source_evaluation": folder.parent / "source" / "evaluation",
        "text": shop.texts[language],
        "initial": folder / "initial",
    }
    search.try_depths(search.DepthTrials(worker=1, out=folder / "worked", **common), run)
    search.search_depth(search.DepthSearch(worked=(folder / "worked",), out=folder / "search", **common), run)
    return load_search(folder / "search")


def test_the_depth_that_a_worker_found_is_a_tag_of_the_registered_primary(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINGRAFT_RESULTS", str(tmp_path / "results"))
    recipe = workshop.recipe.model_copy(update={"system": System.MINIPOST, "mini": BUILDING, "tasks": ()})
    recipe = changed(recipe, "search", depths=(2,), steps_at_depth=2, looks=2)
    with sqlite_store(tmp_path):
        primary = _registered(workshop, recipe, tmp_path)
        assert _searched(workshop, recipe, primary, tmp_path / "de").chosen == 2
        assert tracking.tags_of(primary_name(recipe))["mini_depth.de"] == "2"


def test_a_search_is_the_depth_of_its_language_and_answers_prometheus(
    registered: Registered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, shop = port_for_metrics(monkeypatch), registered.shop
    recipe, run = changed(shop.recipe, "search", depths=(2,), steps_at_depth=4), registered.begin(tmp_path / "run")
    given = search.DepthSearch(
        recipe=recipe,
        primary=shop.primary,
        blocks=shop.blocks["de"],
        tokenizer=shop.tokenizers["de"],
        source_evaluation=registered.evaluation,
        text=shop.texts["de"],
        worked=(),
        out=tmp_path / "search",
    )
    search.search_depth(given, run)
    [trial] = load_search(tmp_path / "search").trials
    assert asked(port)['lingraft_training_step{stage="search-depth"}'] == trial.steps
    assert tracking.tags_of(primary_name(recipe))["depth.de"] == "2"

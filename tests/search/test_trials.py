"""When a trial of a search is stopped, what its score is, and what is written of it; on a real tiny project."""

from pathlib import Path
from typing import Any

import optuna
import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.search import Metric
from lingraft.config.systems import System
from lingraft.config.training import MiniBuilding
from lingraft.data.blocks import open_split
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import RecipeError
from lingraft.model.initialisation import initial_rows as initial_rows_module
from lingraft.model.loading import load_primary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.search import Inputs, search
from lingraft.search import trial as trial_module
from lingraft.search.outcome import PAGE_FILE
from lingraft.stages import pretrain
from lingraft.stages.alignment_probe import Reference, probe_of
from lingraft.stages.embeddings import initial_rows
from lingraft.stages.evaluate import evaluate_source
from lingraft.stages.results import SearchResult, load_search
from lingraft.training.schedule import ignore_metrics
from tests.fixtures import once
from tests.workshop import Workshop, changed

BRIEFLY: dict[str, Any] = {"steps_at_depth": 8, "looks": 2}


@pytest.fixture(autouse=True)
def at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows begin at random, so that there is much to learn."""
    monkeypatch.setattr(initial_rows_module, "shared_pieces", lambda *_: {})


def _search(shop: Workshop, out: Path, **changes: Any) -> SearchResult:
    recipe = changed(shop.recipe, "search", **{"steps_at_depth": 60, **changes})
    search(recipe, _inputs(shop), None, out)
    return load_search(out)


def _inputs(shop: Workshop) -> Inputs:
    return Inputs(shop.primary, shop.blocks["de"], shop.tokenizers["de"], shop.blocks["en"])


def test_a_trial_below_the_median_stops_after_its_time_of_grace_at_the_same_compute_as_any(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_module.Trainer, "_scorer", lambda _, mini: lambda: 1 / mini.shape.layers)
    storage = f"sqlite:///{tmp_path / 'trials'}"
    recipe = changed(workshop.recipe, "search", looks=8, steps_at_depth=40, depths=(1, 3))
    search(recipe, _inputs(workshop), storage, tmp_path / "search")
    found = load_search(tmp_path / "search")
    [shallow, stopped] = found.trials
    assert (shallow.depth, shallow.pruned, stopped.depth, stopped.pruned) == (1, False, 3, True)
    # After 3 of 8 looks, the first after the time of grace, whatever an update costs.
    assert abs(stopped.flops - 3 / 8 * (found.budget_flops or 0)) <= stopped.flops / stopped.steps / 2
    [study] = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=study, storage=storage).trials
    assert [(trial.params["depth"], trial.state.name) for trial in trials] == [(1, "COMPLETE"), (3, "PRUNED")]


@pytest.fixture(scope="module")
def brief(workshop: Workshop) -> Path:
    """A short search."""
    return once.folder("brief", lambda folder: _search(workshop, folder / "search", **BRIEFLY)) / "search"


def test_the_page_and_the_curves_are_files(brief: Path) -> None:
    found = load_search(brief)
    page = (brief / PAGE_FILE).read_text(encoding="utf-8")
    assert f"# {found.chosen} layers for de" in page
    assert page.count("\n| ") == 1 + len(found.trials)
    assert (brief / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def post(workshop: Workshop) -> Recipe:
    """The same project under MINIPOST."""
    building = MiniBuilding(steps=6, batch_blocks=8, learning_rate=3e-3, fresh_layers=1)
    own = workshop.recipe.model_copy(update={"system": System.MINIPOST, "mini": building})
    return changed(own, "search", depths=(1, 2), steps_at_depth=8, looks=2)


def test_step_1b_is_run_once_a_depth_for_all_languages_and_counted(
    workshop: Workshop, post: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINGRAFT_RESULTS", str(tmp_path / "results"))
    primary = tmp_path / "primary"
    short = changed(post, "pretraining", steps=4, warmup_steps=0)
    pretrain.pretrain(short, workshop.blocks["en"], workshop.tokenizers["en"], primary, ignore_metrics)
    found = {}
    for language in ("de", "tr"):
        recipe = changed(post, "search", language=language)
        inputs = Inputs(primary, workshop.blocks[language], workshop.tokenizers[language], workshop.blocks["en"])
        search(recipe, inputs, None, tmp_path / language)
        found[language] = load_search(tmp_path / language)
    minis = [*(tmp_path / "results").glob("mini-*/result")]
    assert len(minis) == 2
    paid = sum(Artifact.load(folder, Kind.MINI).manifest.cost.flops for folder in minis)
    for each in found.values():
        assert sum(cost.flops for cost in each.building.values()) == pytest.approx(paid)
        assert each.flops == pytest.approx(paid + sum(trial.flops for trial in each.trials))
    assert not [*(tmp_path / "results").glob("trial-*/step-*")]


def test_a_search_by_alignment_ranks_trials_by_it(workshop: Workshop, tmp_path: Path) -> None:
    """Dev scores are those of the measure itself, and a depth that finds fewer masked tokens may win."""
    judged, folders = tmp_path / "en", (workshop.texts["en"], workshop.blocks["en"])
    evaluate_source(workshop.recipe, workshop.primary, [], *folders, judged)
    recipe = changed(workshop.recipe, "search", metric=Metric.ALIGNMENT, depths=(1, 3), steps_at_depth=8, looks=2)
    inputs = Inputs(
        primary=workshop.primary,
        blocks=workshop.blocks["de"],
        tokenizer=workshop.tokenizers["de"],
        source_evaluation=judged,
        text=workshop.texts["de"],
    )
    search(recipe, inputs, None, tmp_path / "search")
    found = load_search(tmp_path / "search")
    assert found.metric == "alignment"
    whole = [trial for trial in found.trials if not trial.pruned]
    assert found.chosen == max(whole, key=lambda trial: trial.score).depth
    primary = load_primary(workshop.primary)
    reference, pieces = Reference.load(judged, primary), Tokenizer.load(workshop.tokenizers["de"])
    text = Artifact.load(workshop.texts["de"], Kind.TEXT)
    dev = open_split(Artifact.load(workshop.blocks["de"], Kind.BLOCKS), "dev")
    probe = probe_of(reference, "dev", primary.tokenizer, pieces, text, dev)
    assert probe
    rows = initial_rows(recipe, primary, pieces)
    swap(primary.encoder, make_vocabulary(rows.table_VD, rows.bias_V, rows.special))
    before = probe.measure(primary.encoder)[3].scores.accuracy
    assert {trial.scores_by_flops[0] for trial in found.trials} == {(0.0, before)}
    assert "counterparts in the source language found" in (tmp_path / "search" / PAGE_FILE).read_text()


def test_a_search_by_alignment_needs_the_sources_evaluation(workshop: Workshop, tmp_path: Path) -> None:
    recipe = changed(workshop.recipe, "search", metric=Metric.ALIGNMENT)
    with pytest.raises(RecipeError, match=r"search.metric is 'alignment', .* but its evaluation is not given"):
        search(recipe, Inputs(workshop.primary, workshop.blocks["de"], workshop.tokenizers["de"]), None, tmp_path / "o")

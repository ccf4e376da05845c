"""What each goal chooses, what else than depth is searched, and what is written of it; on a real tiny project."""

import itertools
from pathlib import Path
from typing import Any

import optuna
import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.initialisation import Initialisation
from lingraft.config.recipe import Recipe
from lingraft.config.search import Goal, Metric, Range
from lingraft.config.systems import System
from lingraft.config.training import MiniBuilding
from lingraft.data.blocks import open_split
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import RecipeError
from lingraft.model.initialisation import initial_rows as initial_rows_module
from lingraft.model.initialisation.initial_rows import InitialRows, shared_pieces
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


def test_the_least_compute_to_a_share_of_the_best_score_is_chosen(workshop: Workshop, tmp_path: Path) -> None:
    found = _search(workshop, tmp_path / "search", goal=Goal.COMPUTE, target_share=0.9, looks=4)
    every = [(flops, score, trial) for trial in found.trials for flops, score in trial.scores_by_flops if flops]
    assert found.target == pytest.approx(0.9 * max(score for _, score, _ in every))
    least = min(flops for flops, score, _ in every if score >= (found.target or 0))
    assert any(flops == least and trial.number == found.best for flops, _, trial in every)
    assert found.reason.startswith("the least compute to")


def test_a_trial_that_has_reached_the_target_costs_no_more_and_a_target_that_nobody_reaches_is_said_so(
    workshop: Workshop, tmp_path: Path
) -> None:
    wanted: dict[str, Any] = {"goal": Goal.COMPUTE, "looks": 4, "steps_at_depth": 12}
    found = _search(workshop, tmp_path / "easy", target_score=0.0001, **wanted)
    assert [trial.flops < (trial.whole_flops or 0.0) for trial in found.trials] == [True] * 3
    assert [trial.pruned for trial in found.trials] == [False] * 3
    assert found.flops < found.grid_flops
    found = _search(workshop, tmp_path / "hard", target_score=0.99, **wanted)
    assert "none reached the target of 99.00%" in found.reason
    assert found.best == max(found.trials, key=lambda trial: (not trial.pruned, trial.score)).number


def test_the_front_has_no_point_that_another_beats(workshop: Workshop, tmp_path: Path) -> None:
    found = _search(workshop, tmp_path / "search", looks=4)
    every = [point for trial in found.trials for point in trial.scores_by_flops if point[0]]
    for cheap, dear in itertools.pairwise(found.front):
        assert cheap.flops < dear.flops
        assert cheap.score < dear.score
    for point in found.front:
        assert not [1 for flops, score in every if flops <= point.flops and score > point.score]


def test_a_trial_below_the_median_stops_after_its_time_of_grace_at_the_same_compute_as_any(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates are so low that trials stay where they begin: at random, or, as if aligned, where the source's rows are."""

    def start(recipe: Recipe, *given: Any) -> InitialRows:
        with monkeypatch.context() as patched:
            if recipe.adaptation.initialisation is Initialisation.ALIGNED:
                patched.setattr(initial_rows_module, "shared_pieces", shared_pieces)
            return initial_rows(changed(recipe, "adaptation", initialisation=Initialisation.OVERLAP), *given)

    monkeypatch.setattr(trial_module, "initial_rows", start)
    both, storage = (Initialisation.ALIGNED, Initialisation.OVERLAP), f"sqlite:///{tmp_path / 'trials'}"
    wanted: dict[str, Any] = {"looks": 8, "steps_at_depth": 40, "grace_share": 0.3}
    recipe = changed(workshop.recipe, "search", **wanted, initialisations=both, depths=(1, 3))
    recipe = changed(recipe, "adaptation", learning_rate=1e-5)
    search(recipe, _inputs(workshop), storage, tmp_path / "search")
    found = load_search(tmp_path / "search")
    every = {(trial.depth, trial.initialisation) for trial in found.trials}
    assert every == {(depth, str(how)) for depth in (1, 3) for how in both}
    stopped = [trial for trial in found.trials if trial.pruned]
    assert {trial.initialisation for trial in stopped} == {"overlap"}
    for trial in stopped:  # after 3 of 8 looks, the first after the time of grace, whatever an update costs
        assert abs(trial.flops - 3 / 8 * (found.budget_flops or 0)) <= trial.flops / trial.steps / 2
    [study] = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=study, storage=storage).trials
    pruned = {
        (trial.params["depth"], trial.params["initialisation"]) for trial in trials if trial.state.name == "PRUNED"
    }
    assert pruned == {(trial.depth, trial.initialisation) for trial in stopped}


def test_more_than_depth_is_searched_where_optuna_expects_most(workshop: Workshop, tmp_path: Path) -> None:
    wanted: dict[str, Any] = {"learning_rate": Range(low=1e-3, high=1e-2), "trials": 7, "looks": 4, "grace_share": 0.99}
    found = _search(workshop, tmp_path / "search", steps_at_depth=12, **wanted)
    by_number = sorted(found.trials, key=lambda trial: trial.number)
    assert len(by_number) == 7
    assert sorted(trial.depth for trial in by_number[:3]) == [1, 2, 3]
    assert {trial.learning_rate for trial in by_number[:3]} == {workshop.recipe.adaptation.learning_rate}
    rates = [trial.learning_rate or 0.0 for trial in by_number[3:]]
    assert len(set(rates)) == 4
    assert all(1e-3 <= rate <= 1e-2 for rate in rates)
    assert not any(trial.pruned for trial in by_number)
    assert (tmp_path / "search" / "importance.png").read_bytes().startswith(b"\x89PNG")


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


def test_a_search_that_names_no_metric_goes_on_from_earlier_trials(workshop: Workshop) -> None:
    """Its settings are written as they were before there was a choice, so that studies and recipes keep their names."""
    search_settings = workshop.recipe.require_search()
    assert "metric" not in search_settings.decisive
    by_alignment = search_settings.model_copy(update={"metric": Metric.ALIGNMENT})
    assert '"metric":"alignment"' in by_alignment.decisive

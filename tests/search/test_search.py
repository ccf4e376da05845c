import shutil
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data.blocks import open_split
from lingraft.errors import DepthError, RecipeError, TokenizerError, TrackingError
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.model.swap import swap
from lingraft.search import Inputs, search
from lingraft.search.budget import trial_settings
from lingraft.signals import Interruption
from lingraft.stages.adapt import adapt
from lingraft.stages.results import SearchResult, load_search
from lingraft.training import masked_lm
from lingraft.training.schedule import MetricsCallback, TrainingMetrics, ignore_metrics
from tests.fixtures import once
from tests.search.worker_processes import without_times
from tests.workshop import Workshop, changed


def _search(
    shop: Workshop,
    out: Path,
    recipe: Recipe | None = None,
    storage: str | None = None,
    watch: MetricsCallback = ignore_metrics,
) -> SearchResult:
    recipe = recipe or _with_search(shop.recipe)
    search(recipe, Inputs(shop.primary, shop.blocks["de"], shop.tokenizers["de"]), storage, out, watch=watch)
    return load_search(out)


def _with_search(recipe: Recipe, **changes: Any) -> Recipe:
    """The recipe with a search that is long enough to tell depths apart, and changes."""
    search = recipe.require_search().model_copy(update={"steps_at_depth": 60, **changes})
    return recipe.model_copy(update={"search": search})


@pytest.fixture(scope="module")
def searched(workshop: Workshop) -> Path:
    """A search of German's depth over all heads of the primary, and its storage."""

    def make(folder: Path) -> None:
        _search(workshop, folder / "search", storage=f"sqlite:///{folder / 'trials.db'}")

    return once.folder("searched", make, _with_search(workshop.recipe).to_json())


@pytest.fixture
def storage(searched: Path, tmp_path: Path) -> str:
    """A copy of that search's storage."""
    return f"sqlite:///{shutil.copy(searched / 'trials.db', tmp_path / 'trials.db')}"


@pytest.fixture(scope="module")
def found(searched: Path) -> SearchResult:
    """What it has found."""
    return load_search(searched / "search")


def _trials(storage: str) -> list[tuple[str, list[optuna.trial.FrozenTrial]]]:
    """Studies of a storage and their trials."""
    names = sorted(optuna.get_all_study_names(storage))
    return [(name, optuna.load_study(study_name=name, storage=storage).get_trials()) for name in names]


def test_every_head_is_tried_with_equal_compute_and_the_best_is_chosen(
    workshop: Workshop, found: SearchResult, searched: Path
) -> None:
    assert [trial.depth for trial in found.trials] == list(workshop.recipe.encoder.mlm_heads)
    unpruned = [trial for trial in found.trials if not trial.pruned]
    (reference,) = (trial for trial in unpruned if trial.depth == workshop.recipe.adaptation.depth)
    assert reference.steps == 60
    assert len(unpruned) > 1
    for trial in unpruned:
        assert abs(trial.flops - reference.flops) <= trial.flops / trial.steps / 2
    assert unpruned[-1].steps < reference.steps
    best = max(unpruned, key=lambda trial: trial.score)
    assert found.chosen == best.depth
    assert len({trial.score for trial in found.trials}) > 1
    for trial in found.trials:
        spent = [flops for flops, _ in trial.scores_by_flops]
        assert spent == sorted(spent)
        assert len(spent) > 1
        assert trial.scores_by_flops[-1] == (trial.flops, trial.score)
    fingerprint = Artifact.load(workshop.primary, Kind.PRIMARY).fingerprint
    made = Artifact.load(searched / "search", Kind.SEARCH)
    assert (made.manifest.aligned_with, found.primary, found.language) == (fingerprint, fingerprint, "de")


def test_a_trials_score_is_the_primarys_with_the_rows_that_it_has_learned(workshop: Workshop, tmp_path: Path) -> None:
    """An adaptation of the same length learns the same rows; what its mini-model finds is something else."""
    recipe = _with_search(changed(workshop.recipe, "adaptation", learning_rate=0.03), depths=(1,))
    (trial,) = _search(workshop, tmp_path / "search", recipe).trials
    settings = trial_settings(recipe, trial.steps)
    german = workshop.blocks["de"], workshop.tokenizers["de"]
    same = recipe.model_copy(update={"adaptation": settings})
    made = adapt(same, workshop.primary, *german, 1, tmp_path / "de", ignore_metrics)
    dev = open_split(Artifact.load(workshop.blocks["de"], Kind.BLOCKS), "dev")
    dev_NT = dev.take(torch.arange(min(recipe.require_search().eval_blocks, len(dev))))
    primary = load_primary(workshop.primary)
    swap(primary.encoder, load_embeddings(tmp_path / "de").vocabulary)
    found = masked_lm.accuracy(primary.encoder, dev_NT, (1, 3))
    assert trial.score == pytest.approx(found[3], rel=1e-6)
    assert abs(found[1] - found[3]) > 0.01
    assert trial.flops == pytest.approx(made.manifest.cost.flops)


def test_a_finished_search_is_answered_from_storage(
    workshop: Workshop, found: SearchResult, storage: str, tmp_path: Path
) -> None:
    before = _trials(storage)
    assert _search(workshop, tmp_path / "again", storage=storage) == found
    assert _trials(storage) == before


def test_a_search_broken_off_goes_on_with_the_depths_that_are_left(
    workshop: Workshop, found: SearchResult, storage: str, tmp_path: Path
) -> None:
    ((name, finished),) = _trials(storage)
    theirs = f"sqlite:///{tmp_path / 'broken.db'}"
    study = optuna.create_study(storage=theirs, study_name=name, direction="maximize")
    study.add_trial(next(trial for trial in finished if trial.params["depth"] == 1))
    assert _search(workshop, tmp_path / "search", storage=theirs).chosen == found.chosen
    ((_, trials),) = _trials(theirs)
    assert [(trial.params["depth"], trial.state.is_finished()) for trial in trials] == [(1, True), (2, True), (3, True)]


def test_a_search_that_was_asked_to_stop_goes_on_from_the_checkpoint_of_its_trial(
    workshop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage, recipe = f"sqlite:///{tmp_path / 'trials.db'}", _with_search(workshop.recipe, depths=(2,))

    def stop(point: TrainingMetrics) -> None:
        if point.step >= 30:
            raise Interruption(15, "asked to stop")

    with pytest.raises(Interruption):
        _search(workshop, tmp_path / "search", recipe, storage, stop)
    again = _search(workshop, tmp_path / "search", recipe, storage)
    assert "going on after step" in capsys.readouterr().err
    assert without_times(again) == without_times(_search(workshop, tmp_path / "undisturbed", recipe))
    ((_, trials),) = _trials(storage)
    assert [trial.state.name for trial in trials] == ["FAIL", "COMPLETE"]


def test_other_settings_start_a_search_of_their_own(
    workshop: Workshop, found: SearchResult, storage: str, tmp_path: Path
) -> None:
    shorter = _with_search(workshop.recipe, depths=(3,), steps_at_depth=8)
    result = _search(workshop, tmp_path / "search", shorter, storage)
    assert [trial.depth for trial in result.trials] == [3]
    assert result.trials[0].steps < min(trial.steps for trial in found.trials if trial.depth == 3)


@pytest.mark.parametrize(
    ("changes", "error", "reason"),
    [
        ({"depths": (1, 4)}, DepthError, r"\b4\b.*1, 2, 3"),
        (None, RecipeError, r"no \[search\]"),
        ({"language": "tr"}, TokenizerError, r"'de'.*not of 'tr'"),
    ],
    ids=["no head", "no search", "another language"],
)
def test_what_cannot_be_searched_is_refused(
    workshop: Workshop, tmp_path: Path, changes: dict[str, Any] | None, error: type[Exception], reason: str
) -> None:
    without = workshop.recipe.model_copy(update={"search": None})
    recipe = without if changes is None else _with_search(workshop.recipe, **changes)
    with pytest.raises(error, match=reason):
        _search(workshop, tmp_path / "search", recipe)
    assert not (tmp_path / "search").exists()


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("postgresql+psycopg://lingraft:secret@/optuna?host={folder}", r"lingraft:\*\*\*@"),
        ("sqlite:///{folder}/missing/optuna.db", r"sqlite:///.*/missing/optuna\.db"),
    ],
)
def test_a_storage_that_cannot_be_used_is_named_without_its_password(
    workshop: Workshop, tmp_path: Path, address: str, named: str
) -> None:
    with pytest.raises(TrackingError, match=named) as caught:
        _search(workshop, tmp_path / "search", storage=address.format(folder=tmp_path))
    assert "secret" not in str(caught.value)


def test_the_same_search_finds_the_same_and_whoever_watches_hears_of_every_point(
    workshop: Workshop, tmp_path: Path
) -> None:
    heard: list[TrainingMetrics] = []
    recipe = _with_search(workshop.recipe, depths=(1, 2), steps_at_depth=8)
    one, other = (_search(workshop, tmp_path / name, recipe, watch=heard.append) for name in ("one", "other"))
    assert without_times(one) == without_times(other)
    spent = {flops for trial in one.trials for flops, _ in trial.scores_by_flops if flops}
    assert spent <= {point.flops for point in heard}

"""Workers as real processes on one storage: one is killed, and its trial goes on from its checkpoint elsewhere."""

from collections import Counter
from pathlib import Path

import pytest
from optuna.trial import TrialState

from lingraft.config.recipe import Recipe
from lingraft.stages.results import SearchResult, load_search
from tests.search.worker_processes import Workers, found_by_one, without_times
from tests.workshop import Workshop, changed

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def recipe(workshop: Workshop) -> Recipe:
    """A search whose trials last long enough to be killed in, and are all run to their end, whoever is first."""
    return changed(workshop.recipe, "search", steps_at_depth=200, looks=8, grace_share=0.99)


@pytest.fixture(scope="module")
def undisturbed(workshop: Workshop, recipe: Recipe) -> SearchResult:
    """What one worker finds that nobody kills."""
    return found_by_one(workshop, recipe)


def test_two_workers_share_the_trials_and_one_is_killed(
    workshop: Workshop, recipe: Recipe, undisturbed: SearchResult, tmp_path: Path
) -> None:
    """Storages differ in how they claim trials, which `test_shared_study.py` and `test_server.py` try."""
    workers = Workers(workshop, recipe, f"journal:///{tmp_path / 'trials'}", tmp_path)
    with workers.together("one", "two") as (one, two):
        workers.wait_for_look(2, trials=2)
        one.kill()
        assert two.ends() == 0, workers.log("two")
    assert "was lost" in workers.log("two")
    assert "going on after step" in workers.log("two")
    with workers.board() as board:
        ended = {found.depth: number for number, found in board.records()}
        (lost,) = (trial for trial in board.trials() if trial.state is TrialState.FAIL)
        assert Counter(found.depth for _, found in board.records()) == Counter(recipe.searched_depths)
        assert not board.running()
        again = next(trial for trial in board.trials() if trial.number == ended[lost.params["depth"]])
    assert lost.intermediate_values.items() <= again.intermediate_values.items()
    found = load_search(tmp_path / "two")
    assert without_times(found) == without_times(undisturbed)
    assert found.flops == undisturbed.flops

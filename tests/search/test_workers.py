"""Workers as real processes on one storage: one is killed, and its trial goes on from its checkpoint elsewhere."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from lingraft.config.recipe import Recipe
from lingraft.search.study import _storage
from lingraft.stages.results import SearchResult, load_search
from tests.fixtures.forked import at_once, start
from tests.postgresql import started
from tests.search.worker_processes import Workers, found_by_one, without_times
from tests.workshop import Workshop, changed

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")]


@pytest.fixture(scope="module")
def recipe(workshop: Workshop) -> Recipe:
    """A search whose trials last long enough to be killed in."""
    return changed(workshop.recipe, "search", steps_at_depth=200, looks=8)


@pytest.fixture(scope="module")
def undisturbed(workshop: Workshop, recipe: Recipe) -> SearchResult:
    """What one worker finds that nobody kills."""
    return found_by_one(workshop, recipe)


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "SQLite":
        yield f"sqlite:///{tmp_path / 'trials.db'}"
    else:
        with started() as server:
            yield server.address("mlflow")


def test_two_workers_share_the_trials_and_one_is_killed(
    workshop: Workshop, recipe: Recipe, undisturbed: SearchResult, storage: str, tmp_path: Path
) -> None:
    workers = Workers(workshop, recipe, storage, tmp_path)
    with workers.together("one", "two") as (one, two):
        workers.wait_for_look(2, trials=2)
        one.kill()
        assert two.ends() == 0, workers.log("two")
    assert "has lost its worker" in workers.log("two")
    assert "going on after step" in workers.log("two")
    assert {trial.params["depth"] for trial in workers.trials(TrialState.COMPLETE)} == {*recipe.searched_depths}
    assert not workers.trials(TrialState.RUNNING, TrialState.WAITING)
    found = load_search(tmp_path / "two")
    assert without_times(found) == without_times(undisturbed)
    assert found.flops == undisturbed.flops


def take_all(storage: str) -> list[int]:
    """Take queued trials until there are none."""
    study = optuna.load_study(study_name="queue", storage=_storage(storage))
    taken = []
    while study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        taken.append(study.ask().number)
    return [number for number in taken if number < 40]  # the last ones may have found an empty queue, and drawn


def test_processes_that_take_trials_at_once_never_get_the_same(storage: str, tmp_path: Path) -> None:
    opened = _storage(storage)
    study = optuna.create_study(study_name="queue", storage=opened)
    for depth in range(40):
        study.enqueue_trial({"depth": depth})
    assert isinstance(opened, optuna.storages.RDBStorage)
    opened.remove_session()
    opened.engine.dispose()
    with at_once(tmp_path) as gate:
        several = [start(take_all, storage, log=tmp_path / f"{number}.log", gate=gate) for number in range(4)]
    taken = [number for process in several for number in process.returns()]
    assert Counter(taken) == Counter(range(40))

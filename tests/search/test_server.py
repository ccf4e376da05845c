"""Workers that share PostgreSQL: they claim at once, and its server is started anew or goes away in the middle."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingraft.config.recipe import Recipe
from lingraft.search.storage import WAIT_VARIABLE
from lingraft.stages.results import SearchResult, load_search
from tests.postgresql import PostgreSql, started
from tests.search.test_shared_study import DEPTHS, claim_at_once
from tests.search.worker_processes import Workers, found_by_one, without_times
from tests.workshop import Workshop, changed

pytestmark = pytest.mark.integration


@pytest.fixture
def server() -> Iterator[PostgreSql]:
    with started() as running:
        yield running


@pytest.fixture(scope="module")
def recipe(workshop: Workshop) -> Recipe:
    return changed(workshop.recipe, "search", steps_at_depth=150, depths=(2,))


@pytest.fixture(scope="module")
def undisturbed(workshop: Workshop, recipe: Recipe) -> SearchResult:
    """What one worker finds that nobody kills."""
    return found_by_one(workshop, recipe)


def test_processes_that_claim_at_once_never_get_the_same(server: PostgreSql, tmp_path: Path) -> None:
    assert claim_at_once(server.address("mlflow"), tmp_path) == Counter(DEPTHS)


def test_a_server_that_is_started_anew_is_waited_for(
    workshop: Workshop, recipe: Recipe, undisturbed: SearchResult, server: PostgreSql, tmp_path: Path
) -> None:
    workers = Workers(workshop, recipe, server.address("mlflow"), tmp_path)
    with workers.one("worker") as worker:
        with workers.held_at_look(worker, 2):
            server.stop("immediate")
        worker.wait_for_word("the server of the Optuna storage went away; it is waited for, 60 s at most")
        server.start()
        ended = worker.ends()
    if ended:  # a statement was under way: it is never repeated, since nobody knows whether it was carried out
        last = workers.log("worker").splitlines()[-1]
        assert last.startswith("error: the Optuna storage postgresql+psycopg://mlflow:***@")
        with workers.one("worker") as again:
            assert again.ends() == 0, workers.log("worker")
    assert without_times(load_search(tmp_path / "worker")) == without_times(undisturbed)


def test_without_its_server_a_worker_says_so_and_the_next_goes_on_from_its_checkpoint(
    workshop: Workshop,
    recipe: Recipe,
    undisturbed: SearchResult,
    server: PostgreSql,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(WAIT_VARIABLE, "0.5")
    workers = Workers(workshop, recipe, server.address("mlflow"), tmp_path)
    with workers.one("first") as first:
        with workers.held_at_look(first, 2):
            server.stop("immediate")
        assert first.ends() == 1, workers.log("first")
    last = workers.log("first").splitlines()[-1]
    assert last.startswith("error: the Optuna storage postgresql+psycopg://mlflow:***@")
    assert "see that its folder or server is there" in last
    server.start()
    with workers.one("second") as second:
        assert second.ends() == 0, workers.log("second")
    said = workers.log("second")
    assert "going on after step" in said or " step " not in said, (
        said
    )  # the first may have had nothing left but to tell
    assert without_times(load_search(tmp_path / "second")) == without_times(undisturbed)

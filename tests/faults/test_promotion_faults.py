"""Promotion while MLflow fails at any one request that writes: the alias follows the record, a rerun ends it."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingraft import tracking
from lingraft.tracking.client import UnreachableError
from lingraft.tracking.promotion import decisions
from lingraft.tracking.promotion.decisions import DecisionOutcome
from tests.faults.mlflow_proxy import PASSING, Fault, Proxy, proxy_to
from tests.manifests import conftest as manifests
from tests.tracking.promotion import conftest as stores
from tests.tracking.promotion.project import Project
from tests.tracking_stores import quiet

pytestmark = [quiet, pytest.mark.integration]
WRITES = 3
"""The decision, the alias, and how the decision ended."""
documents, pods = manifests.documents, manifests.pods
overlay, database, server = stores.overlay, stores.database, stores.server


@pytest.fixture
def proxy(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """What MLFLOW_TRACKING_URI points at."""
    with proxy_to(server) as proxy:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{proxy.port}")
        monkeypatch.setattr("lingraft.retry.backoff", lambda _: itertools.repeat(0.02))
        yield proxy


def disturb_write(proxy: Proxy, fault: Fault, number: int) -> None:
    """Do something to the writing request of this number, counted from now."""
    count = itertools.count()

    def decide(request: str) -> Fault:
        writes = not request.startswith("GET") and not request.endswith("/search")
        return fault if writes and next(count) == number else Fault.NONE

    proxy.fault = decide


def begun(name: str, folder: Path) -> Project:
    """A project with a champion, version 1, and a better challenger, version 2."""
    project = Project.begin(name, folder)
    number, mark = project.register_primary()
    project.promote(project.primary, number)
    project.promote(project.embeddings, project.register_embeddings(mark, 1.0, masked=0.2))
    project.register_embeddings(mark, 2.0, masked=0.4)
    return project


def outcomes(project: Project) -> list[tuple[int | None, DecisionOutcome]]:
    with tracking.retrying_client() as client:
        found = decisions.history(client, project.recipe.name, project.embeddings)
    return [(each.decision.after, each.outcome) for each in found]


def some(*faults: Fault) -> pytest.MarkDecorator:
    """These in integration, the others nightly."""
    others = [pytest.param(fault, marks=pytest.mark.nightly) for fault in PASSING if fault not in faults]
    return pytest.mark.parametrize("fault", [*faults, *others])


@some(Fault.TORN)
def test_any_one_write_may_fail_and_the_promotion_is_made_once(fault: Fault, proxy: Proxy, tmp_path: Path) -> None:
    project, number = begun(f"healed-{fault.name.lower()}", tmp_path), 0
    for number in itertools.count():
        proxy.injected.clear()
        disturb_write(proxy, fault, number)
        assert project.promote(project.embeddings, 2).moved
        injected, proxy.fault = len(proxy.injected), lambda request: Fault.NONE
        assert project.champion(project.embeddings) == 2
        assert outcomes(project)[-1] == (2, DecisionOutcome.DONE)
        assert len(outcomes(project)) == 2 * number + 2
        if not injected:
            break
        roll_back(project)
    assert number == WRITES


@some(Fault.UNANSWERED)
def test_a_promotion_that_was_broken_off_anywhere_is_ended_by_the_next(
    fault: Fault, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, failures = begun(f"broken-{fault.name.lower()}", tmp_path), 0
    monkeypatch.setenv("LINGRAFT_TRACKING_WAIT_S", "0")
    for number in itertools.count():
        proxy.injected.clear()
        disturb_write(proxy, fault, number)
        try:
            project.promote(project.embeddings, 2)
        except UnreachableError:
            failures += 1
        injected, proxy.fault = len(proxy.injected), lambda request: Fault.NONE
        assert project.champion(project.embeddings) in {1, 2}
        project.promote(project.embeddings, 2)
        assert project.champion(project.embeddings) == 2
        assert DecisionOutcome.INTENDED not in {outcome for _, outcome in outcomes(project)}
        if not injected:
            break
        roll_back(project)
    assert failures == WRITES


def roll_back(project: Project) -> None:
    from lingraft.tracking.promotion.promote import rollback

    with tracking.retrying_client() as client:
        assert rollback(client, project.embeddings, "a test").after == 1

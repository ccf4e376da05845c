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
    with proxy_to(server) as proxy:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{proxy.port}")
        monkeypatch.setattr("lingraft.retry.backoff", lambda _: itertools.repeat(0.02))
        yield proxy


def disturb_write(proxy: Proxy, fault: Fault, number: int) -> None:
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


@pytest.mark.parametrize(
    "fault",
    [Fault.TORN, *(pytest.param(each, marks=pytest.mark.nightly) for each in PASSING if each is not Fault.TORN)],
)
@pytest.mark.parametrize(
    "waits", [pytest.param(True, id="healed", marks=pytest.mark.nightly), pytest.param(False, id="broken")]
)
def test_any_one_write_may_fail_and_the_promotion_is_made_once_or_ended_by_the_next(
    fault: Fault, waits: bool, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = begun(f"{'healed' if waits else 'broken'}-{fault.name.lower()}", tmp_path)
    if not waits:
        monkeypatch.setenv("LINGRAFT_TRACKING_WAIT_S", "0")
    failures = 0
    for number in itertools.count():
        proxy.injected.clear()
        disturb_write(proxy, fault, number)
        try:
            assert project.promote(project.embeddings, 2).moved
        except UnreachableError:
            failures += 1
        injected, proxy.fault = len(proxy.injected), lambda request: Fault.NONE
        assert project.champion(project.embeddings) in ({2} if waits else {1, 2})
        project.promote(project.embeddings, 2)
        assert project.champion(project.embeddings) == 2
        assert DecisionOutcome.INTENDED not in {outcome for _, outcome in outcomes(project)}
        if waits:
            assert outcomes(project)[-1] == (2, DecisionOutcome.DONE)
            assert len(outcomes(project)) == 2 * number + 2
        if not injected:
            break
        assert project.rollback(project.embeddings).after == 1
    assert (number, failures) == (WRITES, 0 if waits else WRITES)


def test_a_promotion_whose_answers_are_all_torn_once_is_made_once(proxy: Proxy, tmp_path: Path) -> None:
    project = begun("torn-once", tmp_path)
    proxy.fail_first_of_each(Fault.TORN)
    assert project.promote(project.embeddings, 2).moved
    assert len([request for _, request in proxy.injected if not request.startswith("GET")]) >= WRITES
    assert project.champion(project.embeddings) == 2
    assert outcomes(project)[-1] == (2, DecisionOutcome.DONE)
    assert len(outcomes(project)) == 2

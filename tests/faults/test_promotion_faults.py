"""Promotion while MLflow fails at any one request that writes: one champion, and a rerun ends it."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingraft.tracking.client import UnreachableError
from lingraft.tracking.versions import PREVIOUS
from tests.faults.mlflow_proxy import PASSING, Fault, Proxy, proxy_to
from tests.manifests import conftest as manifests
from tests.tracking.promotion import conftest as stores
from tests.tracking.promotion.project import Project
from tests.tracking_stores import quiet

pytestmark = [quiet, pytest.mark.integration]
WRITES = 3
"""The verdict, the alias of the champion before, and that of the new one."""
documents, pods = manifests.documents, manifests.pods
overlay, database, server = stores.overlay, stores.database, stores.server


@pytest.fixture
def proxy(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxy_to(server) as proxy:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{proxy.port}")
        for setting in ("FACTOR", "JITTER"):
            monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_BACKOFF_{setting}", "0")
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


@pytest.mark.parametrize(
    ("fault", "waits"),
    [
        pytest.param(Fault.TORN, False, id="broken-torn"),
        *(
            pytest.param(fault, waits, id=f"{'healed' if waits else 'broken'}-{fault.name}", marks=pytest.mark.nightly)
            for fault in PASSING
            if fault is not Fault.TORN  # an answer that MLflow does not ask for again
            for waits in (True, False)
        ),
    ],
)
def test_any_one_write_may_fail_and_the_promotion_is_made_once_or_ended_by_the_next(
    fault: Fault, waits: bool, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = begun(f"{'healed' if waits else 'broken'}-{fault.name.lower()}", tmp_path)
    if not waits:
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    failures = 0
    for number in itertools.count():
        proxy.injected.clear()
        disturb_write(proxy, fault, number)
        try:
            assert project.promote(project.embeddings, 2).passed
        except UnreachableError:
            failures += 1
        injected, proxy.fault = len(proxy.injected), lambda request: Fault.NONE
        assert project.champion(project.embeddings) in ({2} if waits else {1, 2})
        project.promote(project.embeddings, 2)
        assert (project.champion(project.embeddings), project.champion(project.embeddings, PREVIOUS)) == (2, 1)
        if not injected:
            break
        assert project.roll_back(project.embeddings).version == 1
    assert (number, failures) == (WRITES, 0 if waits else WRITES)

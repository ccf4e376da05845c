"""Several at once against a real server: one version of one content, and one champion of many challengers."""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from mlflow import MlflowClient

from lingraft import tracking
from lingraft.artifacts.manifest import Kind
from lingraft.errors import SupersededError
from lingraft.tracking.promotion import decisions
from lingraft.tracking.promotion.decisions import DecisionOutcome, Record
from lingraft.tracking.promotion.promote import promote
from lingraft.tracking.versions import download, version_of
from tests.faults.mlflow_proxy import Fault, Proxy, proxy_to
from tests.fixtures import forked
from tests.tracking.promotion.project import Project
from tests.tracking_stores import quiet

pytestmark = [quiet, pytest.mark.integration]
on_postgresql = pytest.mark.parametrize("database", ["postgresql"], indirect=True, scope="session")
PROCESSES = 3
ANSWER_LIMIT_S = 300
Function = Callable[..., object]


def together(function: Function, several: Sequence[tuple[object, ...]]) -> list[object]:
    """Call a function with several arguments, each in a process, and the barrier at which they meet before the last.

    Returns:
        what each has returned, in their order.
    """
    fork = multiprocessing.get_context("fork")
    barrier, answers = fork.Barrier(len(several)), [fork.SimpleQueue() for _ in several]
    processes = [
        fork.Process(target=_call, args=(answer, function, barrier, *arguments))
        for answer, arguments in zip(answers, several, strict=True)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(ANSWER_LIMIT_S)
    assert [process.exitcode for process in processes] == [0] * len(processes)
    return [answer.get() for answer in answers]


def _call(answer: "multiprocessing.SimpleQueue[object]", function: Function, *arguments: object) -> None:
    answer.put(function(*arguments))


def register(barrier: Barrier, run: str, made: Path, name: str, flag: int) -> str:
    """Register an artifact as all others do, each in a stage of its own; returns the version."""
    with tracking.stage(run, f"register-{flag}") as stage:
        barrier.wait(ANSWER_LIMIT_S)
        return tracking.register(name, made, Kind.EMBEDDINGS, stage, {"score": 0.5})


def compete(barrier: Barrier, name: str, number: int) -> str:
    with tracking.retrying_client() as client:
        barrier.wait(ANSWER_LIMIT_S)
        return promoted(client, name, number)


def promoted(client: tracking.RetryingClient, name: str, number: int) -> str:
    try:
        return "moved" if promote(client, name, number, f"process {number}").moved else "refused"
    except SupersededError as error:
        return f"overtaken {error}"


@contextlib.contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[Future[object]]:
    """Do something in a thread: its requests are held, and who else asks in this process is not it."""
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(work)


@contextlib.contextmanager
def held(server: int, request: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before the server that holds the first request of this kind; what comes later goes through."""
    with proxy_to(server) as proxy:
        proxy.fault = lambda seen: Fault.HELD if seen == request and not proxy.injected else Fault.NONE
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{proxy.port}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", str(ANSWER_LIMIT_S))  # nobody asks again meanwhile
        yield proxy


def records(project: Project) -> list[Record]:
    with tracking.retrying_client() as client:
        return decisions.history(client, project.recipe.name, project.embeddings)


@on_postgresql
def test_processes_that_register_the_same_at_once_make_one_version(remote: Project, tmp_path: Path) -> None:
    made = remote.make(Kind.EMBEDDINGS, 1.0, language="de", aligned_with="a1" * 32)
    several = [(remote.run, made.folder, remote.embeddings, number) for number in range(PROCESSES)]
    versions = set(forked.start(together, register, several, log=tmp_path / "log").returns())
    mlflow_client = MlflowClient()
    experiment = mlflow_client.get_run(remote.run).info.experiment_id
    [version] = mlflow_client.search_model_versions(f"name='{remote.embeddings}'")
    assert versions == {str(version.version)}
    [model] = [each for each in mlflow_client.search_logged_models([experiment]) if each.name == remote.embeddings]
    assert (str(model.status), f"models:/{model.model_id}") == ("READY", version.source)
    assert (version.tags["fingerprint"], version.tags["score"]) == (made.fingerprint, "0.5")
    with tracking.retrying_client() as client:
        found = version_of(client, remote.embeddings, int(version.version))
        fetched = download(client, found, Kind.EMBEDDINGS, tmp_path / "back")
    assert fetched.manifest == made.manifest


def test_who_registers_the_same_later_leaves_no_files_of_its_own(
    remote: Project, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has found no files of another one's, and brings its own after the other one has made the version."""
    made = remote.make(Kind.EMBEDDINGS, 1.0, language="de", aligned_with="a1" * 32)
    with held(server, "POST /api/2.0/mlflow/logged-models", monkeypatch) as proxy:
        with meanwhile(lambda: remote.register(remote.embeddings, made)) as slow:
            proxy.wait_until(lambda: bool(proxy.injected))
            assert remote.register(remote.embeddings, made) == 1
            proxy.released.set()
        assert slow.result() == 1
    mlflow_client = MlflowClient(f"http://localhost:{server}")
    [version] = mlflow_client.search_model_versions(f"name='{remote.embeddings}'")
    [model] = mlflow_client.search_logged_models([mlflow_client.get_run(remote.run).info.experiment_id])
    assert version.source == f"models:/{model.model_id}"


@on_postgresql
def test_of_challengers_that_are_promoted_at_once_one_wins_and_the_others_are_told(
    remote: Project, tmp_path: Path
) -> None:
    number, mark = remote.register_primary()
    remote.promote(remote.primary, number)
    numbers = [remote.register_embeddings(mark, float(value), masked=0.3) for value in range(1, PROCESSES + 1)]
    several = [(remote.embeddings, each) for each in numbers]
    ended = dict(zip(numbers, forked.start(together, compete, several, log=tmp_path / "log").returns(), strict=True))
    [winner] = [each for each, end in ended.items() if end == "moved"]
    assert remote.champion(remote.embeddings) == winner
    kept = records(remote)
    # Equally good ones that came later than the winner was seen are refused by the gate, not overtaken.
    assert [each.decision.after for each in kept if each.outcome is DecisionOutcome.DONE] == [winner]
    assert {each.decision.after for each in kept} == {*numbers}
    assert {each.outcome for each in kept} <= {
        DecisionOutcome.DONE,
        DecisionOutcome.SUPERSEDED,
        DecisionOutcome.REFUSED,
    }


@pytest.fixture
def two(remote: Project) -> tuple[int, int]:
    """Versions of German, both better than their initialisation, and neither champion; the second is the better one."""
    number, mark = remote.register_primary()
    remote.promote(remote.primary, number)
    return remote.register_embeddings(mark, 1.0, masked=0.3), remote.register_embeddings(mark, 2.0, masked=0.5)


def slowly(project: Project, number: int) -> str:
    with tracking.retrying_client() as client:
        return promoted(client, project.embeddings, number)


def test_a_promoter_that_is_slower_than_another_is_overtaken_and_told(
    remote: Project, two: tuple[int, int], server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its decision is on its way to the server while the other one's is carried out."""
    fast, slow = two
    with held(server, "POST /api/2.0/mlflow/model-versions/create", monkeypatch) as proxy:
        with meanwhile(lambda: slowly(remote, slow)) as promotion:
            proxy.wait_until(lambda: bool(proxy.injected))
            assert remote.promote(remote.embeddings, fast, by="the fast one").moved
            proxy.released.set()
        told = promotion.result()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{server}")
    assert str(told).startswith("overtaken")
    assert f"the fast one decided to promote version {fast}" in str(told)
    assert remote.champion(remote.embeddings) == fast
    assert [(each.decision.after, each.outcome) for each in records(remote)] == [
        (fast, DecisionOutcome.DONE),
        (slow, DecisionOutcome.SUPERSEDED),
    ]


def test_a_promoter_that_was_taken_for_lost_does_not_undo_what_came_after(
    remote: Project, two: tuple[int, int], server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the lower number, and moves the alias only after another command has finished it and gone on."""
    slow, better = two
    alias = "POST /api/2.0/mlflow/registered-models/alias"
    with held(server, alias, monkeypatch) as proxy, meanwhile(lambda: slowly(remote, slow)):
        proxy.wait_until(lambda: bool(proxy.injected))
        assert remote.promote(remote.embeddings, better).before == slow
        proxy.released.set()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{server}")
    assert remote.champion(remote.embeddings) == better
    assert [(each.decision.after, each.outcome) for each in records(remote)] == [
        (slow, DecisionOutcome.DONE),
        (better, DecisionOutcome.DONE),
    ]

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
from lingraft.tracking.promotion import promote
from lingraft.tracking.versions import PREVIOUS, download, version_of
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


def register(barrier: Barrier, run: str, made: Path, name: str, flag: int) -> int:
    """Register an artifact as all others do, each in a stage of its own; returns the version."""
    with tracking.stage(run, f"register-{flag}") as stage:
        barrier.wait(ANSWER_LIMIT_S)
        return tracking.register(name, made, Kind.EMBEDDINGS, stage, {"score": 0.5})


def compete(barrier: Barrier, name: str, number: int) -> str:
    barrier.wait(ANSWER_LIMIT_S)
    return promoted(name, number)


def promoted(name: str, number: int) -> str:
    try:
        return "moved" if promote(tracking.connect(), name, number, f"process {number}").passed else "refused"
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


@on_postgresql
def test_processes_that_register_the_same_at_once_make_one_version(remote: Project, tmp_path: Path) -> None:
    made = remote.make(Kind.EMBEDDINGS, 1.0, language="de", aligned_with="a1" * 32)
    several = [(remote.run, made.folder, remote.embeddings, number) for number in range(PROCESSES)]
    versions = set(forked.start(together, register, several, log=tmp_path / "log").returns())
    mlflow_client = MlflowClient()
    experiment = mlflow_client.get_run(remote.run).info.experiment_id
    [version] = mlflow_client.search_model_versions(f"name='{remote.embeddings}'")
    assert versions == {int(version.version)}
    [model] = [each for each in mlflow_client.search_logged_models([experiment]) if each.name == remote.embeddings]
    assert (str(model.status), f"models:/{model.model_id}") == ("READY", version.source)
    assert (version.tags["fingerprint"], version.tags["score"]) == (made.fingerprint, "0.5")
    found = version_of(tracking.connect(), remote.embeddings, int(version.version))
    fetched = download(found, Kind.EMBEDDINGS, tmp_path / "back")
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
def test_challengers_that_are_promoted_at_once_leave_one_champion_and_keep_the_previous_one(
    remote: Project, tmp_path: Path
) -> None:
    number, mark = remote.register_primary()
    remote.promote(remote.primary, number)
    first = remote.register_embeddings(mark, 9.0, masked=0.2)
    remote.promote(remote.embeddings, first)
    numbers = [remote.register_embeddings(mark, float(value), masked=0.4) for value in range(1, PROCESSES + 1)]
    several = [(remote.embeddings, each) for each in numbers]
    ended = dict(zip(numbers, forked.start(together, compete, several, log=tmp_path / "log").returns(), strict=True))
    # Equally good ones that came later than the winner was seen are refused by the gate, not overtaken.
    winner = remote.champion(remote.embeddings)
    assert winner is not None
    assert ended[winner] == "moved"
    assert remote.champion(remote.embeddings, PREVIOUS) == first
    assert remote.roll_back(remote.embeddings).version == first


def test_a_promoter_that_is_slower_than_another_is_told_and_moves_nothing(
    remote: Project, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its verdict is on its way to the server while the other one's alias is moved."""
    number, mark = remote.register_primary()
    remote.promote(remote.primary, number)
    first, fast, slow = (
        remote.register_embeddings(mark, value, masked) for value, masked in ((1.0, 0.2), (2.0, 0.4), (3.0, 0.6))
    )
    remote.promote(remote.embeddings, first)
    with held(server, "POST /api/2.0/mlflow/model-versions/set-tag", monkeypatch) as proxy:
        with meanwhile(lambda: promoted(remote.embeddings, slow)) as promotion:
            proxy.wait_until(lambda: bool(proxy.injected))
            assert remote.promote(remote.embeddings, fast, by="the fast one").passed
            proxy.released.set()
        told = promotion.result()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://localhost:{server}")
    assert str(told).startswith(f"overtaken the fast one made version {fast}")
    assert (remote.champion(remote.embeddings), remote.champion(remote.embeddings, PREVIOUS)) == (fast, first)

"""No trial is done twice, and none is lost with its worker."""

import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.storages.journal import JournalFileSymlinkLock
from optuna.trial import TrialState

from lingraft.config.search import Goal
from lingraft.search.heartbeat import LivenessMonitor
from lingraft.search.shared_study import LeaseLostError, SharedStudy
from lingraft.search.storage import WAIT_VARIABLE, StorageError
from lingraft.stages.results import Trial
from tests.fixtures.forked import at_once, moments, start

DEPTHS = tuple(range(1, 9))


@pytest.fixture(params=["sqlite", "journal"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:///{tmp_path / 'trials'}"


def _board(address: str | None, goal: Goal = Goal.SCORE, lost_after_s: float = 60.0) -> SharedStudy:
    return SharedStudy.open("study", address, goal, {"depth": DEPTHS}, lost_after_s)


def _found(number: int, depth: int) -> Trial:
    cost = {"steps": 1, "flops": 1.0, "elapsed_s": 1.0}
    return Trial(number=number, depth=depth, score=0.5, pruned=False, scores_by_flops=[(1.0, 0.5)], **cost)


def claim_all(address: str) -> list[int]:
    """Take as many depths as this process can get."""
    board = _board(address)
    return [depth for depth in DEPTHS if board.claim({"depth": depth})]


def claim_at_once(address: str, folder: Path) -> Counter[int]:
    """Claim in four processes that begin at the same moment; they make the tables of a database at once, too."""
    with at_once(folder) as gate:
        workers = [start(claim_all, address, gate=gate, log=folder / f"{number}.log") for number in range(4)]
    return Counter(depth for worker in workers for depth in worker.returns())


class Clock:
    """Seconds that pass when a test says so."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def begin(address: str) -> None:
    """Claim a trial, report of it, and do no more."""
    board = _board(address)
    trial = board.claim({"depth": 3})
    assert trial
    board.report(trial.number, 1, 0.25)
    print("begun", flush=True)
    signal.pause()


def hold_lock(journal: str) -> None:
    JournalFileSymlinkLock(journal).acquire()
    print("held", flush=True)
    signal.pause()


def hold_table(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    print("held", flush=True)
    time.sleep(0.2)
    connection.execute("COMMIT")


def test_processes_that_claim_at_once_never_get_the_same(address: str, tmp_path: Path) -> None:
    assert claim_at_once(address, tmp_path) == Counter(DEPTHS)
    running = _board(address).running()
    assert sorted(trial.params["depth"] for trial in running) == list(DEPTHS)


def test_a_worker_that_was_killed_is_seen_at_once_and_its_scores_are_handed_on(address: str, tmp_path: Path) -> None:
    board = _board(address)
    with start(begin, address, log=tmp_path / "worker.log") as worker:
        worker.wait_for_word("begun")
        assert board.release_lost() == []
        assert board.claim({"depth": 3}) is None
        worker.kill()
    (lost,) = board.release_lost()
    assert board.abandoned() == [{"depth": 3}]
    again = board.claim({"depth": 3})
    assert again
    assert again.number > lost.number
    assert again.intermediate_values == {1: 0.25}


def test_a_worker_elsewhere_is_lost_when_it_gives_no_sign_for_a_while() -> None:
    clock = Clock()
    board = replace(_board(None, lost_after_s=30), _liveness=LivenessMonitor(clock))
    trial = board.claim({"depth": 1})
    assert trial
    elsewhere = ["another machine", "pid:[1]", "1", "1"]
    board.storage.set_trial_user_attr(board._id(trial.number), "worker", elsewhere)
    assert board.release_lost() == []
    clock.now_s += 20
    board.storage.set_trial_user_attr(board._id(trial.number), "beat", 1)
    assert board.release_lost() == []
    clock.now_s += 20
    assert board.release_lost() == []
    clock.now_s += 20
    assert [lost.number for lost in board.release_lost()] == [trial.number]


def test_a_trial_gives_signs_of_life() -> None:
    board = _board(None, lost_after_s=0.2)
    trial = board.claim({"depth": 1})
    assert trial
    with board.heartbeat(trial.number):
        for _ in moments(0.01, lambda: "no second sign of life"):
            if board.running()[0].user_attrs.get("beat", 0) >= 2:
                break


def test_a_worker_that_was_taken_for_lost_learns_so(address: str) -> None:
    board = _board(address)
    trial = board.claim({"depth": 1})
    assert trial
    board.release(trial.number, "taken for lost")
    with pytest.raises(LeaseLostError, match=f"trial {trial.number}"):
        board.report(trial.number, 1, 0.5)
    with pytest.raises(LeaseLostError):
        board.finish(trial.number, _found(trial.number, 1), [0.5])


def test_a_trial_that_cannot_be_trained_is_not_tried_again(address: str) -> None:
    board = _board(address)
    trial = board.claim({"depth": 1})
    assert trial
    board.fail(trial.number, "no finite loss")
    assert board.claim({"depth": 1}) is None
    assert board.abandoned() == []
    assert board.failures() == {'{"depth": 1}': "no finite loss"}


@pytest.mark.parametrize(
    ("goal", "values"), [(Goal.SCORE, [0.5]), (Goal.COMPUTE, [float("inf")]), (Goal.PARETO, [1.0, 0.5])]
)
def test_optuna_sees_scores_values_and_what_was_stopped(goal: Goal, values: list[float], address: str) -> None:
    board = _board(address, goal)
    for depth in (1, 2):
        trial = board.claim({"depth": depth})
        assert trial
        board.report(trial.number, 1, 0.5)
        board.finish(trial.number, _found(trial.number, depth), values if depth == 1 else None)
    whole, stopped = optuna.load_study(study_name="study", storage=board.storage).trials
    assert (whole.state, whole.values, whole.intermediate_values) == (TrialState.COMPLETE, values, {1: 0.5})
    assert (stopped.state, stopped.intermediate_values) == (TrialState.PRUNED, {1: 0.5})
    assert [found.depth for _, found in board.records()] == [1, 2]


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SharedStudy, sqlite3.Connection]]:
    """A study in a SQLite file that another connection holds."""
    monkeypatch.setenv(WAIT_VARIABLE, "0.2")
    board = _board(f"sqlite:///{tmp_path / 'trials'}")
    other = sqlite3.connect(tmp_path / "trials", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    yield board, other
    other.close()


def test_a_storage_that_stays_locked_is_named_with_what_to_do(locked: tuple[SharedStudy, sqlite3.Connection]) -> None:
    board, _ = locked
    with pytest.raises(StorageError, match=rf"is locked.* 0\.2 s \({WAIT_VARIABLE}\).*End what holds it") as caught:
        board.claim({"depth": 1})
    assert caught.value.heals


def test_a_storage_that_is_locked_for_a_moment_is_waited_for(
    locked: tuple[SharedStudy, sqlite3.Connection], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(WAIT_VARIABLE, "30")
    board, other = _board(None), locked[1]
    other.execute("COMMIT")
    board = _board(f"sqlite:///{tmp_path / 'trials'}")
    with start(hold_table, tmp_path / "trials", log=tmp_path / "holder.log") as holder:
        holder.wait_for_word("held")
        assert board.claim({"depth": 1})


@pytest.mark.nightly
def test_the_lock_of_a_worker_that_was_killed_with_it_is_taken_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optuna breaks the lock of a journal that nobody has written to for 30 s, also where the path was relative."""
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    board = _board("journal:///folder/trials")
    with start(hold_lock, str(tmp_path / "folder" / "trials"), log=tmp_path / "holder.log") as holder:
        holder.wait_for_word("held")
    assert [*Path("folder").glob("*.lock")]
    assert board.claim({"depth": 1})
    assert not [*Path("folder").glob("*.lock")]


def test_an_entry_that_a_full_disk_tore_is_cut_off_and_no_other_is_lost_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = tmp_path / "trials"
    board = _board(f"journal:///{journal}")
    with journal.open("a") as torn:
        torn.write('{"op_code": 4, "worker')
    assert board.claim({"depth": 1})
    assert board.claim({"depth": 2})
    assert f"the last 22 bytes of {journal} are no whole entry" in capsys.readouterr().err
    assert [trial.params["depth"] for trial in _board(f"journal:///{journal}").running()] == [1, 2]


def test_a_journal_that_is_damaged_is_said_to_be(tmp_path: Path) -> None:
    journal = tmp_path / "trials"
    assert _board(f"journal:///{journal}").claim({"depth": 1})
    first, *others = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join([first, "{}x\n", *others]))
    with pytest.raises(StorageError, match=rf"journal:///{journal} is damaged: .* Delete that line"):
        _board(f"journal:///{journal}")

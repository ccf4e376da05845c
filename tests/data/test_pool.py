import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingraft.data import pool
from lingraft.data.pool import WorkerError, available_cores, parallel_map
from lingraft.errors import TextError
from tests.mapped import ERRORS, die_amid, die_amid_answer, divide, enlarged, refuse, slower_at_first, square


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers take the first item."""
    monkeypatch.setattr(pool, "_ALONE_S", 0.0)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("count", [1, 3])
def test_results_come_in_the_order_of_the_items(count: int) -> None:
    assert list(parallel_map(square, range(50), count)) == [number * number for number in range(50)]


@pytest.mark.parametrize("items", [[], [7]])
def test_fewer_than_two_items_need_no_process(items: list[int]) -> None:
    assert [pid for _, pid in parallel_map(slower_at_first, items, 2)] == [os.getpid()] * len(items)


def test_workers_start_when_the_work_has_taken_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_ALONE_S", 0.1)  # slower than all items but the first
    pids = [pid for _, pid in parallel_map(slower_at_first, range(8), 2)]
    assert pids[0] == os.getpid()
    assert os.getpid() not in pids[1:]
    assert {pid for _, pid in parallel_map(slower_at_first, range(1, 8), 2)} == {os.getpid()}


def test_a_slow_first_item_comes_first_though_others_are_done_before_and_workers_end_with_the_iterator() -> None:
    answers = parallel_map(slower_at_first, range(1000), 2)
    first = [next(answers) for _ in range(20)]
    assert [number for number, _ in first] == list(range(20))
    pids = {pid for _, pid in first}
    assert len(pids) == 2
    assert os.getpid() not in pids
    answers.close()
    assert not any(map(alive, pids))


def test_items_are_taken_no_further_than_a_few_ahead() -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    answers = parallel_map(square, items(), 2)
    for number in range(20):
        assert next(answers) == number * number
        assert len(taken) <= number + 1 + 2 * pool._AHEAD
    answers.close()


def test_items_and_answers_larger_than_a_socket_holds_do_not_block_each_other() -> None:
    items = [bytes([number]) * (1 << 21) for number in range(8)]
    assert list(parallel_map(bytes, items, 2)) == items
    assert list(parallel_map(enlarged, range(8), 2)) == items


@pytest.mark.parametrize(("error", "count"), [*((error, 2) for error in ERRORS), ("text", 1)])
def test_an_error_of_ours_arrives_as_it_was_raised_after_the_results_before_it(error: str, count: int) -> None:
    answers = parallel_map(functools.partial(refuse, error=error), range(10), count)
    assert [next(answers) for _ in range(3)] == [0, 1, 2]
    expected = ERRORS[error]()
    with pytest.raises(type(expected)) as caught:
        next(answers)
    assert str(caught.value) == str(expected)
    assert vars(caught.value) == vars(expected)


def test_a_defect_ends_the_map_and_leaves_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WorkerError, match=r"ended with exit code 1 before its work was done.* standard error says why"):
        list(parallel_map(divide, range(10), 2))
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_worker_that_is_killed_is_an_error_and_no_hang(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"worker process \d+ was ended by SIGKILL before its work was done"):
        list(parallel_map(functools.partial(die_amid, mark=tmp_path / "killed"), range(100), 2))


def test_a_worker_that_is_killed_in_the_middle_of_its_answer_is_an_error_and_no_hang() -> None:
    with pytest.raises(WorkerError, match="SIGKILL"):
        list(parallel_map(die_amid_answer, range(100), 2))


def test_workers_end_when_the_items_cannot_be_read() -> None:
    def items() -> Iterator[int]:
        yield from range(20)
        raise TextError("line 21 is no text")

    pids = set()
    with pytest.raises(TextError, match="line 21"):
        pids.update(pid for _, pid in parallel_map(slower_at_first, items(), 2))
    assert not any(map(alive, pids))


_SCRIPT = textwrap.dedent(
    """
    import signal, sys, time
    from lingraft.data import pool
    from lingraft.data.pool import parallel_map
    from tests.mapped import slower_at_first

    pool._ALONE_S = 0.0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it
    for number, pid in parallel_map(slower_at_first, iter(int, 1), 2):
        print(pid, flush=True)
        time.sleep(0.05)
    """
)
"""Without `if __name__ == "__main__"`: a worker that ran it would start workers of its own."""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_parents_end_is_the_workers_end(how: signal.Signals) -> None:
    """As Ctrl-C on a terminal: the signal reaches the whole group."""
    command = [sys.executable, "-c", _SCRIPT]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as parent:  # fmt: skip
        assert parent.stdout
        assert parent.stderr
        pids = {int(parent.stdout.readline()) for _ in range(6)}
        if how is signal.SIGINT:
            os.killpg(parent.pid, how)
        else:
            parent.kill()
        errors = parent.stderr.read()
        assert parent.wait(timeout=20) == -how
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))
    assert errors.count("Traceback") == (1 if how is signal.SIGINT else 0)


@pytest.mark.parametrize(("text", "expected"), [("max 100000\n", 4), ("50000 100000\n", 1), ("150000 100000\n", 2)])
def test_a_containers_quota_counts_where_it_is_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: int
) -> None:
    (tmp_path / "cpu.max").write_text(text)
    monkeypatch.setattr(pool, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert available_cores() == expected

"""Steps in processes of their own, started anew or forked: signals reach them, and nothing else of their launcher."""

import atexit
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import pytest

from lingraft.signals import EXIT_CODES, Interruption, signal_handler
from lingraft.steps.launch import child, step
from lingraft.steps.launch.calls import AttemptResult, Call
from tests.fixtures import forked
from tests.steps.launch import small_steps
from tests.training.distributed.project import alive, wait_for

WAYS = {"anew": child._spawn, "forked": child._Fork}


@pytest.fixture(params=["forked"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How small steps are started; a new Python takes seconds, so only what differs by it asks for both ways."""
    monkeypatch.setattr(child, "_start", WAYS[request.param])
    monkeypatch.setattr(child, "step", small_steps)
    return str(request.param)


@pytest.fixture
def missed() -> Iterator[list[int]]:
    """Signals that the launcher did not see to, which would have ended it."""
    seen: list[int] = []
    with signal_handler(lambda number, _: seen.append(number)):
        yield seen


class _Asked(subprocess.Popen[bytes]):
    number: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        os.kill(os.getpid(), self.number)


def ask_when_started(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Have this process get a signal the moment that a process of a step is there."""
    monkeypatch.setattr(_Asked, "number", number, raising=False)
    monkeypatch.setattr(subprocess, "Popen", _Asked)
    start = ForkProcess.start

    def start_and_ask(process: ForkProcess) -> None:
        start(process)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(ForkProcess, "start", start_and_ask)


def attempted(name: str, **arguments: Any) -> AttemptResult:
    """What becomes of a small step."""
    return child.attempt(Call(step=name, arguments=arguments))


@pytest.mark.parametrize(
    ("way", "number"),
    [("anew", signal.SIGTERM), *(("forked", number) for number in EXIT_CODES)],
    indirect=["way"],
)
def test_a_stop_that_comes_while_the_step_starts_reaches_it(
    way: str, number: signal.Signals, missed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_when_started(monkeypatch, number)
    with pytest.raises(Interruption) as caught:
        attempted("waits")
    assert caught.value.exit_code == EXIT_CODES[number]
    assert missed == []


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("by_a_thread", [False, True], ids=["by the process", "by another thread"])
def test_a_stop_that_is_received_later_is_heeded_by_the_step(
    by_a_thread: bool, missed: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    def ask() -> None:
        while "heeds" not in capfd.readouterr().out:
            time.sleep(0.01)
        if by_a_thread:
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    with pytest.raises(Interruption) as caught:
        attempted("heeds")
    asking.join()
    assert caught.value.exit_code == EXIT_CODES[signal.SIGTERM]
    assert missed == []


@pytest.mark.usefixtures("way")
def test_a_stop_that_reaches_a_fork_while_it_still_has_its_launchers_handlers_is_not_lost(
    missed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    join_group = os.setpgid

    def late(process: int, group: int) -> None:
        until = time.monotonic() + 10
        while signal.SIGTERM not in signal.sigpending() and time.monotonic() < until:
            time.sleep(0.001)
        join_group(process, group)

    monkeypatch.setattr(os, "setpgid", late)
    ask_when_started(monkeypatch, signal.SIGTERM)
    with pytest.raises(Interruption):
        attempted("waits")
    assert missed == []


@pytest.mark.usefixtures("way")
def test_a_step_that_ends_without_an_answer_is_told_by_how_it_ended(capfd: pytest.CaptureFixture[str]) -> None:
    assert str(attempted("is_ended").failed).endswith("ended by SIGTERM, and its log says why")
    assert str(attempted("fails").failed).endswith("ended with exit code 1, and its log says why")
    assert "ZeroDivisionError: a mistake" in capfd.readouterr().err


def test_a_step_that_cannot_be_done_answers_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_start", child._Fork)
    ended = child.attempt(Call(step="os.system", arguments={}))
    assert "there is no step 'os.system'" in str(ended.reason)
    assert not ended.heals


def end_differently() -> None:
    """Do a small step in a fork, and write at the end of this process, too."""
    vars(child)["_start"], vars(child)["step"] = child._Fork, small_steps
    atexit.register(print, "launcher")
    print("before", flush=True)
    attempted("says", begins="step", ends="last of the step")


def test_a_fork_does_what_it_has_registered_for_its_end_and_leaves_its_launchers(tmp_path: Path) -> None:
    started = forked.start(end_differently, log=tmp_path / "log")
    started.returns()
    assert started.said.splitlines() == ["before", "step", "last of the step", "launcher"]


def run_step(call_file: Path, hold: bool) -> None:
    """Fork a real step, which waits for its call; one that is held comes to itself after we have gone."""
    launcher, join_group = os.getpid(), os.setpgid

    def held(process: int, group: int) -> None:
        print(os.getpid(), flush=True)
        while hold and os.getppid() == launcher:
            time.sleep(0.01)
        join_group(process, group)

    os.setpgid = held
    with child._forwarding_signals() as wait_for_end:
        wait_for_end(child._Fork([str(call_file), f"{call_file}.answer"]))


@pytest.mark.parametrize("hold", [False, True], ids=["under way", "not begun"])
def test_a_step_does_not_outlive_its_launcher(hold: bool, tmp_path: Path) -> None:
    call_file = tmp_path / "call.json"
    os.mkfifo(call_file)
    with forked.start(run_step, call_file, hold, log=tmp_path / "log") as launcher:
        launcher.wait_until(lambda: launcher.said.endswith("\n"))
        with contextlib.nullcontext() if hold else call_file.open("wb"):  # as soon as the step has opened it, too
            launcher.kill()
            its_step = int(launcher.said)
            wait_for(lambda: not alive(its_step))


def test_a_step_whose_launcher_is_another_process_than_its_parent_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(step.LAUNCHER, str(os.getpid()))
    assert forked.start(step.main, log=tmp_path / "log").ends() == -signal.SIGKILL

"""Steps in processes of their own, started anew or forked: signals reach them, and nothing else of their launcher."""

import atexit
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import pytest

from lingraft.signals import EXIT_CODES, Interruption, signal_handler
from lingraft.steps.launch import child, step
from lingraft.steps.launch.calls import AttemptResult, Call
from tests.fixtures import forked
from tests.steps.launch import small_steps
from tests.training.distributed.launch import children_of
from tests.training.distributed.project import alive, wait_for

WAYS = {"anew": child._spawn, "forked": child._Fork}
ENDED_BY_SIGTERM = "ended by SIGTERM, and its log says why"


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How steps are started, each way in turn; they are small ones."""
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


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("number", EXIT_CODES)
def test_a_stop_that_comes_while_the_step_starts_reaches_it(
    number: signal.Signals, missed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_when_started(monkeypatch, number)
    with pytest.raises(Interruption) as caught:
        attempted("waits")
    assert caught.value.exit_code == EXIT_CODES[number]
    assert missed == []


@pytest.mark.usefixtures("way")
def test_a_stop_that_comes_later_is_heeded_by_the_step(missed: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    def ask() -> None:
        while "heeds" not in capfd.readouterr().out:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    with pytest.raises(Interruption) as caught:
        attempted("heeds")
    asking.join()
    assert caught.value.exit_code == EXIT_CODES[signal.SIGTERM]
    assert missed == []


@pytest.mark.usefixtures("way")
def test_a_stop_that_another_thread_receives_reaches_the_step(
    missed: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    def receive() -> None:
        while "heeds" not in capfd.readouterr().out:
            time.sleep(0.01)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    receiving = threading.Thread(target=receive)
    receiving.start()
    with pytest.raises(Interruption):
        attempted("heeds")
    receiving.join()
    assert missed == []


def test_a_stop_that_reaches_a_fork_while_it_still_has_its_launchers_handlers_is_not_lost(
    missed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    join_group = os.setpgid

    def late(process: int, group: int) -> None:
        until = time.monotonic() + 10
        while signal.SIGTERM not in signal.sigpending() and time.monotonic() < until:
            time.sleep(0.001)
        join_group(process, group)

    monkeypatch.setattr(child, "_start", child._Fork)
    monkeypatch.setattr(child, "step", small_steps)
    monkeypatch.setattr(os, "setpgid", late)
    ask_when_started(monkeypatch, signal.SIGTERM)
    with pytest.raises(Interruption):
        attempted("waits")
    assert missed == []


@pytest.mark.usefixtures("way")
def test_a_step_that_somebody_else_ends_has_not_been_stopped_by_us() -> None:
    assert str(attempted("is_ended").failed).endswith(ENDED_BY_SIGTERM)


@pytest.mark.usefixtures("way")
def test_a_mistake_of_ours_leaves_a_traceback_and_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    assert str(attempted("fails").failed).endswith("ended with exit code 1, and its log says why")
    assert "ZeroDivisionError: a mistake" in capfd.readouterr().err


@pytest.mark.parametrize("start", WAYS.values(), ids=WAYS)
def test_a_step_that_cannot_be_done_answers_why(start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_start", start)
    ended = child.attempt(Call(step="os.system", arguments={}))
    assert "there is no step 'os.system'" in str(ended.reason)
    assert not ended.heals


@pytest.fixture
def peculiar(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process handles and ignores signals, logs, and has something to do when it ends."""
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGHUP)}
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    root, handler = logging.getLogger(), logging.StreamHandler()
    monkeypatch.setattr(root, "handlers", [*root.handlers, handler])
    monkeypatch.setattr(root, "level", logging.DEBUG)
    monkeypatch.setenv("OF_A_TEST", "told")
    yield
    for number, handling in before.items():
        signal.signal(number, handling)


@pytest.mark.usefixtures("way", "peculiar")
def test_a_step_takes_from_its_launcher_only_what_a_new_process_does() -> None:
    answer = attempted("sees").answer
    assert answer is not None
    handled_by_python = answer.result.pop("handled")
    assert handled_by_python in ([], ["SIGINT"])  # by which a new Python raises KeyboardInterrupt
    assert answer.result == {
        "ignored": ["SIGHUP"],
        "blocked": [],
        "log handlers": 0,
        "log level": logging.WARNING,
        "leads a group": True,
        "launcher": str(os.getpid()),
        "of the launcher's environment": "told",
    }


def end_differently(way: str) -> None:
    """Do a small step, and write at the end of this process, too."""
    vars(child)["_start"], vars(child)["step"] = WAYS[way], small_steps
    atexit.register(print, "launcher")
    print("before", flush=True)
    attempted("says", begins="step", ends="last of the step")


@pytest.mark.parametrize("way", WAYS)
def test_a_step_does_what_it_has_registered_for_its_end_and_leaves_its_launchers(way: str, tmp_path: Path) -> None:
    started = forked.start(end_differently, way, log=tmp_path / "log")
    started.returns()
    assert started.said.splitlines() == ["before", "step", "last of the step", "launcher"]


def run_step(way: str, call_file: Path, hold: bool) -> None:
    """Start a real step, which waits for its call; a fork that is held comes to itself after we have gone."""
    launcher, join_group = os.getpid(), os.setpgid

    def held(process: int, group: int) -> None:
        print(os.getpid(), flush=True)
        while os.getppid() == launcher:
            time.sleep(0.01)
        join_group(process, group)

    if hold:
        os.setpgid = held
    arguments = [str(call_file), f"{call_file}.answer"]
    start: Callable[[Sequence[str]], child._Process] = WAYS[way]
    with child._forwarding_signals() as wait_for_end:
        wait_for_end(start(arguments))


@pytest.mark.parametrize("way", WAYS)
def test_a_step_does_not_outlive_its_launcher(way: str, tmp_path: Path) -> None:
    call_file = tmp_path / "call.json"
    os.mkfifo(call_file)
    with (
        forked.start(run_step, way, call_file, False, log=tmp_path / "log") as launcher,
        call_file.open("wb"),  # as soon as the step has opened it, too
    ):
        [its_step] = children_of(launcher.pid)
        launcher.kill()
        wait_for(lambda: not alive(its_step))


def test_a_fork_whose_launcher_is_gone_before_it_has_begun_ends(tmp_path: Path) -> None:
    call_file = tmp_path / "call.json"
    os.mkfifo(call_file)
    with forked.start(run_step, "forked", call_file, True, log=tmp_path / "log") as launcher:
        launcher.wait_until(lambda: launcher.said.endswith("\n"))
        its_step = int(launcher.said)
        launcher.kill()
        wait_for(lambda: not alive(its_step))


def test_a_step_whose_launcher_is_another_process_than_its_parent_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(step.LAUNCHER, str(os.getpid()))
    assert forked.start(step.main, log=tmp_path / "log").ends() == -signal.SIGKILL

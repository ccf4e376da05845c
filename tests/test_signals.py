"""Signals: noticed, given again where nobody has heeded them, and left to whoever saw to them before."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, cast

import pytest

from lingraft.signals import (
    EXIT_CODES,
    Interruption,
    interruptible,
    restore_signal_handlers,
    signal_handler,
    stop_signals,
)
from lingraft.training.run import TrainingRun
from lingraft.training.schedule import Schedule, TrainingMetrics
from lingraft.training.training_state import TrainingState
from tests.plans import planned


def ask(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


def fail_when_asked(number: int, error: BaseException) -> None:
    ask(number)
    raise error


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in EXIT_CODES]


@pytest.mark.parametrize("number", EXIT_CODES)
def test_a_stop_beside_an_error_is_not_lost(number: signal.Signals) -> None:
    before = handlers()
    with pytest.raises(Interruption) as caught, interruptible(), stop_signals():
        fail_when_asked(number, OSError("disk full"))
    assert caught.value.exit_code == EXIT_CODES[number]
    assert isinstance(caught.value.__context__, OSError)
    assert handlers() == before


def test_a_stop_that_has_been_heeded_is_not_given_again() -> None:
    heeded = Interruption(signal.SIGTERM, "step 7 is kept")
    with pytest.raises(Interruption) as caught, interruptible(), stop_signals():
        fail_when_asked(signal.SIGTERM, heeded)
    assert caught.value is heeded


def test_a_stop_that_came_too_late_is_given_again() -> None:
    with pytest.raises(Interruption), interruptible(), stop_signals():
        ask()


def test_an_error_without_a_stop_stays_what_it_is() -> None:
    with pytest.raises(OSError, match="disk full"), interruptible(), stop_signals():
        raise OSError("disk full")


class Fragile:
    """Asks to stop in its finaliser, from which Python lets no exception out."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __del__(self) -> None:
        ask(self.number)


def drop(number: signal.Signals) -> None:
    Fragile(number)
    threading.Event().wait(60)
    pytest.fail("the signal was lost")


@pytest.mark.parametrize("number", EXIT_CODES)
def test_a_stop_that_python_drops_is_given_again(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.unraisablehook
    with pytest.raises(Interruption) as caught, interruptible():
        drop(number)
    assert caught.value.exit_code == EXIT_CODES[number]
    assert sys.unraisablehook is before
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("seeing_to_it", [interruptible, stop_signals])
def test_ctrl_c_that_is_ignored_stays_ignored(seeing_to_it: Callable[[], AbstractContextManager[Any]]) -> None:
    with restore_signal_handlers():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with seeing_to_it():
            ask(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_what_a_library_sets_is_put_back() -> None:
    before = handlers()
    with restore_signal_handlers():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert handlers() == before


def test_in_a_thread_signals_stay_what_they_are() -> None:
    before, seen = handlers(), list[object]()

    def work() -> None:
        with interruptible(), stop_signals(), signal_handler(lambda *_: None):
            seen.extend(handlers())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == before


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("fails_at", ["earlier", "later"])
def test_a_watcher_that_fails_leaves_signals_as_they_were(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, fails_at: str
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    before, plan = handlers(), planned(steps=20, warmup_steps=0)
    point = TrainingMetrics(step=1, tokens=1, flops=1.0, elapsed_s=1.0, loss=1.0, learning_rate=0.1)

    def training() -> Iterator[TrainingMetrics]:
        with stop_signals():
            yield point

    def watch(_: TrainingMetrics) -> None:
        raise OSError("disk full")

    points = training()  # held here, so that nothing but the run itself can close it
    run = run_of(points, plan, (point,) if fails_at == "earlier" else ())
    with pytest.raises(OSError, match="disk full"), run.watched("pretrain", watch) as report:
        report(next(run.points))
    assert handlers() == before
    assert [*points] == []


def run_of(points: Iterator[TrainingMetrics], plan: Schedule, earlier: tuple[TrainingMetrics, ...]) -> TrainingRun:
    return TrainingRun(cast(Any, points), plan.steps, "fp32", TrainingState(), earlier, None)

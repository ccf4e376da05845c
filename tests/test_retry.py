"""What fails for a while is tried again for a limited time, with growing pauses."""

import itertools
from collections.abc import Callable

import pytest

from lingraft.retry import backoff, retry


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses_s: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        self.now_s += pause_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("lingraft.retry.time", clock)
    return clock


def failing(times: int, error: Exception) -> Callable[[], int]:
    """A call that fails so many times, and returns how often it was made."""
    count = itertools.count(1)

    def call() -> int:
        if (number := next(count)) <= times:
            raise error
        return number

    return call


def test_pauses_double_up_to_a_quarter_of_a_minute() -> None:
    assert [*itertools.islice(backoff(), 8)] == [0.5, 1, 2, 4, 8, 15, 15, 15]


def test_a_transient_error_is_followed_by_another_try(clock: Clock) -> None:
    told: list[float] = []
    found = retry(failing(3, OSError()), lambda _: True, 60, lambda _, left_s: told.append(left_s), last_pause_s=1)
    assert (found, clock.pauses_s, told) == (4, [0.5, 1, 1], [60, 59.5, 58.5])


def test_another_error_is_raised_at_once(clock: Clock) -> None:
    with pytest.raises(KeyError):
        retry(failing(3, KeyError()), lambda error: isinstance(error, OSError), 60, lambda *_: None)
    assert clock.pauses_s == []


@pytest.mark.parametrize(("within_s", "pauses_s"), [(0, []), (1.5, [0.5]), (1.6, [0.5, 1])])
def test_a_pause_that_would_end_too_late_is_not_begun(clock: Clock, within_s: float, pauses_s: list[float]) -> None:
    with pytest.raises(OSError, match="down"):
        retry(failing(9, OSError("down")), lambda _: True, within_s, lambda *_: None)
    assert clock.pauses_s == pauses_s

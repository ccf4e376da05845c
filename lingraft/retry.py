"""The library's one way to wait: for something that fails for a while, or that has not happened yet."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

_FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 15.0

Result = TypeVar("Result")


def backoff(last_s: float = LAST_PAUSE_S) -> Iterator[float]:
    """Yield the seconds to wait before each retry: half a second, then doubled every time, up to `last_s`."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, last_s)


def retry(
    call: Callable[[], Result],
    is_transient: Callable[[Exception], bool],
    within_s: float,
    before_pause: Callable[[Exception, float], object],
    last_pause_s: float = LAST_PAUSE_S,
) -> Result:
    """Return what `call` returns; repeat it with growing pauses while its error is transient and time is left.

    Args:
        call: function to call. It may be called again after a success whose answer was lost.
        is_transient: whether the same call may succeed later; any other error is raised at once.
        within_s: seconds after which a transient error is raised, too. A pause that would end later is not begun.
        before_pause: called with each error that is followed by a retry, and with the seconds that are left.
        last_pause_s: longest pause.
    """
    deadline_s = time.monotonic() + within_s
    for pause_s in backoff(last_pause_s):
        try:
            return call()
        except Exception as error:
            left_s = deadline_s - time.monotonic()
            if left_s <= pause_s or not is_transient(error):
                raise
            before_pause(error, left_s)
        time.sleep(pause_s)
    raise AssertionError("backoff() does not end")


def poll(every_s: float, within_s: float = math.inf, ended: threading.Event | None = None) -> Iterator[None]:
    """Yield at once, then every so many seconds.

    Args:
        every_s: seconds between two polls.
        within_s: seconds after which the current poll is the last one.
        ended: no poll follows once it is set, which also ends a pause.
    """
    deadline_s = time.monotonic() + within_s
    while not (ended and ended.is_set()):
        yield
        if time.monotonic() >= deadline_s:
            return
        if ended:
            ended.wait(every_s)
        else:
            time.sleep(every_s)

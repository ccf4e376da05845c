"""Notice that the machine is about to go: a spot node's SIGTERM, or Ctrl-C."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

EXIT_CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}
"""75 is sysexits' EX_TEMPFAIL: nothing is wrong, try again. 130 is what shells report of Ctrl-C."""

_AGAIN_S = 0.01


class Interruption(BaseException):
    """Training has stopped because it was asked to, and goes on when it is started again.

    No error: what collects the failures of many trainings must not take it for one.
    """

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.signal = signal.Signals(signal_number)
        self.exit_code = EXIT_CODES[self.signal]


class StopRequest:
    """Whether the process has been asked to stop, by which signal; 0 if not."""

    def __init__(self) -> None:
        self.signal_number = 0

    def give(self, signal_number: int, _: FrameType | None) -> None:
        """Handle a signal; one that comes again while training stops is not an order to stop at once."""
        self.signal_number = signal_number


@contextlib.contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Turn SIGTERM and SIGINT into a stop request while the body runs; outside of the main thread, leave them alone.

    A request that came too late, or beside an error, is sent again as a signal at the end, for the handlers before.
    """
    notice = StopRequest()
    try:
        with signal_handler(notice.give):
            yield notice
    except Interruption:
        notice.signal_number = 0  # the training has stopped for it
        raise
    finally:
        if notice.signal_number:
            signal.raise_signal(notice.signal_number)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM and SIGINT into an `Interruption` at once, where `stop_signals` does not see to them."""
    raised: list[Interruption] = []

    def stop(signal_number: int, _: FrameType | None) -> None:
        raised.append(Interruption(signal_number, "asked to stop. Run the same again to go on."))
        raise raised[-1]

    with _redeliver_dropped(), signal_handler(stop):
        try:
            yield
        except BaseException as error:
            if raised and error is not raised[-1]:  # raised while the interruption was handled
                raise raised[-1] from error
            raise


@contextlib.contextmanager
def _redeliver_dropped() -> Iterator[None]:
    """Send a signal again whose `Interruption` was dropped: Python drops what is raised in finalisers and callbacks.

    Each import has such a callback.
    """
    before = sys.unraisablehook

    def send_again(dropped: "sys.UnraisableHookArgs") -> None:
        if isinstance(dropped.exc_value, Interruption):
            number = dropped.exc_value.signal
            threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number)).start()  # when the callback has returned
        else:
            before(dropped)

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextlib.contextmanager
def signal_handler(
    handle: Callable[[int, FrameType | None], None], numbers: Iterable[signal.Signals] = tuple(EXIT_CODES)
) -> Iterator[None]:
    """Handle signals while the body runs, except ignored ones; only the main thread can, in others nothing changes."""
    with restore_signal_handlers(numbers):
        if threading.current_thread() is threading.main_thread():
            for number in not_ignored(numbers):
                signal.signal(number, handle)
        yield


@contextlib.contextmanager
def restore_signal_handlers(numbers: Iterable[signal.Signals] = tuple(EXIT_CODES)) -> Iterator[None]:
    """Restore the signal handlers at the end, whatever a library has set meanwhile."""
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def not_ignored(numbers: Iterable[signal.Signals] = tuple(EXIT_CODES)) -> list[signal.Signals]:
    """Return the signals that are not ignored; a shell has its background jobs ignore Ctrl-C."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def end_quietly_on_ctrl_c() -> None:
    """Let Ctrl-C end this process at once and without a traceback, until the program handles signals itself.

    Python would raise KeyboardInterrupt in the midst of an import. A process that was started with SIGINT ignored, as
    shells start background jobs, goes on ignoring it. Process 1 of a container, for which Linux drops signals that it
    does not handle, ends on SIGTERM as well.
    """
    if os.getpid() == 1:
        for number in EXIT_CODES:
            signal.signal(number, _end)
    elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end(number: int, _: FrameType | None) -> None:
    os._exit(EXIT_CODES[signal.Signals(number)])

"""The first moments of a program, while it imports what it needs."""

import os
import signal
from types import FrameType

from lingraft.stopping import EXIT_CODES


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

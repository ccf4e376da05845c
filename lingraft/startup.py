"""The first moments of a program, while it imports what it needs."""

import signal


def end_quietly_on_ctrl_c() -> None:
    """Let Ctrl-C end this process at once and without a traceback, until the program handles signals itself.

    Python would raise KeyboardInterrupt in the midst of an import. A process that was started with SIGINT ignored, as
    shells start background jobs, goes on ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

"""Let KFP have cheap stacks: it asks for one at each setting of a step, only to name the caller in an error."""

import contextlib
import inspect
import sys
from collections.abc import Iterator

_BEFORE = inspect.stack


@contextlib.contextmanager
def without_sources() -> Iterator[None]:
    """Let `inspect.stack` look up no sources meanwhile.

    It would look for the source of every frame, and where a frame has none, as two of `python -m` have none, in all
    modules that have been imported: three quarters of the time of `python -m pipelines compile`.
    """
    inspect.stack = _stack
    try:
        yield
    finally:
        inspect.stack = _BEFORE  # not what was there just before: two threads may overlap


def _stack(context: int = 1) -> list[inspect.FrameInfo]:
    """The stack of the caller, innermost frame first, without lines of sources."""
    found, frame = [], sys._getframe(1)
    while frame:
        code = frame.f_code
        found.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None))
        frame = frame.f_back
    return found

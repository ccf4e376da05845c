"""Cheap stacks for KFP, which reads one for each setting of a step, only to name the caller in an error."""

import contextlib
import inspect
import sys
from collections.abc import Iterator

_BEFORE = inspect.stack


@contextlib.contextmanager
def without_sources() -> Iterator[None]:
    """Keep `inspect.stack` from looking up source lines.

    It looks for the source of every frame. If a frame has none, as two of `python -m`, it searches all modules:
    three quarters of the time of `python -m pipelines compile`.
    """
    inspect.stack = _stack
    try:
        yield
    finally:
        inspect.stack = _BEFORE  # always the original: two threads may overlap


def _stack(context: int = 1) -> list[inspect.FrameInfo]:
    """Return the caller's stack, innermost frame first, without source lines."""
    found = []
    frame = sys._getframe(1)
    while frame:
        code = frame.f_code
        found.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None))
        frame = frame.f_back
    return found

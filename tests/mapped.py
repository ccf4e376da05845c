"""Functions that tests map over processes; a worker that imports them imports nothing heavy."""

import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from lingraft.errors import LingraftError, MissingExtraError, TextError


def square(number: int) -> int:
    return number * number


def slower_at_first(number: int) -> tuple[int, int]:
    time.sleep(0.2 if number == 0 else 0.0)
    return number, os.getpid()


def enlarged(number: int) -> bytes:
    return bytes([number]) * (1 << 21)


def too_many_pieces() -> LingraftError:
    from lingraft.data.tokenizer.unigram import TooManyPiecesError

    return TooManyPiecesError("9 at most", 9)


ERRORS: dict[str, Callable[[], LingraftError]] = {
    "text": lambda: TextError("line 4 is no text"),
    "two arguments": lambda: MissingExtraError("torch", "gpu"),
    "more than a message": too_many_pieces,
}


def refuse(number: int, error: str) -> int:
    if number == 3:
        raise ERRORS[error]()
    return number


def divide(number: int) -> float:
    return 1 / (number - 3)


def die_amid(number: int, mark: Path) -> int:
    if number == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_amid_answer(number: int) -> bytes:
    if number == 3:
        Connection._send = send_half  # type: ignore[attr-defined]
    return bytes(1 << 20)


def send_half(connection: Connection, message: bytes) -> None:
    """What a kill between two writes leaves: the length of the message, and some of it."""
    os.write(connection.fileno(), message if len(message) < 100 else message[:1000])
    if len(message) >= 100:
        os.kill(os.getpid(), signal.SIGKILL)

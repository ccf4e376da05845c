import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from lingraft.ahead import ahead


def makers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("batches")]


def test_all_items_come_in_their_order_and_the_thread_ends() -> None:
    assert list(ahead(range(100))) == list(range(100))
    assert list(ahead([])) == []
    assert makers() == []


def test_the_next_items_are_made_meanwhile_and_no_more() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    ready = ahead(items())
    assert next(ready) == 0
    deadline = time.monotonic() + 5
    while len(made) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(0.02)
    assert made == [0, 1, 2]
    ready.close()
    assert makers() == []


def test_an_error_comes_in_its_turn_and_ends_the_thread() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise OSError("the disk is gone")

    ready = ahead(items())
    assert [next(ready) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(ready)
    assert makers() == []


@pytest.mark.parametrize("lost", [SystemExit(3), KeyboardInterrupt(), MemoryError()])
def test_a_maker_that_dies_is_an_error_and_no_hang(lost: BaseException) -> None:
    def item(number: int) -> int:
        if number == 2:
            raise lost
        return number

    with pytest.raises(type(lost)):
        list(ahead(map(item, itertools.count())))
    assert makers() == []


def test_a_reader_that_stops_ends_the_thread() -> None:
    for item in ahead(itertools.count()):
        if item == 5:
            break
    del item
    deadline = time.monotonic() + 5
    while makers():
        assert time.monotonic() < deadline

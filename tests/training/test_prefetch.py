import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from lingraft.training.prefetch import _map_tensors, prefetch

OTHERS: list[threading.Thread] = []
"""Threads of tests before: a reader that a traceback still holds ends when it is forgotten."""


@pytest.fixture(autouse=True)
def others() -> None:
    OTHERS[:] = threading.enumerate()


def makers() -> list[threading.Thread]:
    mine = [thread for thread in threading.enumerate() if thread not in OTHERS]
    return [thread for thread in mine if thread.name.startswith("batches")]


def test_all_items_come_in_their_order_and_the_thread_ends() -> None:
    assert list(prefetch(range(100))) == list(range(100))
    assert list(prefetch([])) == []
    assert makers() == []


class Batch(NamedTuple):
    tokens_BT: Tensor
    first: int


def test_where_there_is_a_gpu_batches_are_made_in_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[tuple[Tensor, str]] = []

    def pin(tensor: Tensor) -> Tensor:
        pinned.append((tensor, threading.current_thread().name))
        return tensor

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device", lambda gpu: nullcontext(gpu))
    monkeypatch.setattr(Tensor, "pin_memory", pin)
    batches = [Batch(torch.full((2, 3), number), number) for number in range(2)]
    assert [batch.first for batch in prefetch(batches)] == [0, 1]
    assert [int(tensor[0, 0]) for tensor, _ in pinned] == [0, 1]
    assert all(name.startswith("batches") for _, name in pinned)  # not while a step waits


def test_the_next_items_are_made_meanwhile_and_no_more() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    ready = prefetch(items())
    assert next(ready) == 0
    deadline = time.monotonic() + 5
    while len(made) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(0.02)
    assert made == [0, 1, 2]
    ready.close()
    require_none_left()


@pytest.mark.parametrize("lost", [SystemExit(3), KeyboardInterrupt(), MemoryError()])
def test_a_maker_that_dies_is_an_error_and_no_hang(lost: BaseException) -> None:
    def item(number: int) -> int:
        if number == 2:
            raise lost
        return number

    with pytest.raises(type(lost)):
        list(prefetch(map(item, itertools.count())))
    assert makers() == []


def require_none_left() -> None:
    deadline = time.monotonic() + 5
    while makers():
        assert time.monotonic() < deadline


def stalled(gate: threading.Event) -> Iterator[int]:
    """One item, and then a source that does not answer."""
    yield 1
    gate.wait()
    yield 2


def test_who_has_a_reason_not_to_wait_goes_on_without_the_item_and_loses_none() -> None:
    gate, looks = threading.Event(), itertools.count()
    ready = prefetch(stalled(gate))
    ready.wait(unless=lambda: False)
    assert next(ready) == 1
    ready.wait(unless=lambda: next(looks) == 3)
    gate.set()
    ready.wait(unless=lambda: False)
    assert list(ready) == [2]


def test_an_error_and_the_end_come_in_their_turn_as_often_as_they_are_asked_for() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise OSError("the disk is gone")

    failing, ending = prefetch(items()), prefetch(range(3))
    assert [(next(failing), next(ending)) for _ in range(3)] == [(0, 0), (1, 1), (2, 2)]
    for _ in range(4):
        with pytest.raises(OSError, match="the disk is gone"):
            next(failing)
        assert next(ending, None) is None
    assert makers() == []


class Tokens(NamedTuple):
    """A batch."""

    tokens_BT: Tensor
    types_BT: Tensor | None
    first: int


def test_all_tensors_of_a_batch_are_pinned_or_moved_and_nothing_else_changes() -> None:
    batch = [(0.25, Tokens(torch.ones(2), None, 7)), (0.75, Tokens(torch.zeros(2), torch.ones(1), 9))]
    pinned = _map_tensors(batch, lambda tensor: tensor + 100)
    assert [(share, type(tokens), tokens.first) for share, tokens in pinned] == [(0.25, Tokens, 7), (0.75, Tokens, 9)]
    assert [tokens.tokens_BT.tolist() for _, tokens in pinned] == [[101, 101], [100, 100]]
    assert pinned[0][1].types_BT is None
    assert pinned[1][1].types_BT.tolist() == [101]

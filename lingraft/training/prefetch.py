"""Batches that a thread prepares while the steps before them train."""

import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")

_READY = 2
"""Items that are made ahead."""
_POLL_S = 0.05


class Prefetcher(Iterator[Item]):
    """Items in their order, the next two made ahead; an error in making one is raised where it is asked for.

    A thread of an executor would be waited for at the end of the process. Nobody waits for this one, neither who stops
    reading nor the end of the process, since its source may hang.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        """Begin to make the items."""
        self._asked_for: SimpleQueue[futures.Future[Item] | None] = SimpleQueue()
        self._ready: deque[futures.Future[Item]] = deque()
        for _ in range(_READY):
            self._ask()
        self.close = weakref.finalize(self, self._asked_for.put, None)
        """Let the thread end, as it does when nobody can read any more."""
        threading.Thread(target=_produce, args=(iter(items), self._asked_for), name="batches", daemon=True).start()

    def wait(self, unless: Callable[[], object]) -> None:
        """Wait until the next item is ready, or there is a reason not to wait for it."""
        while not (self._ready[0].done() or unless()):
            futures.wait([self._ready[0]], _POLL_S)

    def __next__(self) -> Item:
        """Return the next item."""
        item = self._ready[0].result()  # an error is not passed over, nor is the end
        self._ready.popleft()
        self._ask()
        return item

    def _ask(self) -> None:
        item: futures.Future[Item] = futures.Future()
        self._ready.append(item)
        self._asked_for.put(item)


def prefetch(items: Iterable[Item]) -> Prefetcher[Item]:
    """Make batches ahead; where there is a GPU, in pinned memory, from which copies to it need not be waited for."""
    if torch.cuda.is_available():
        items = map(functools.partial(_pin_for, torch.cuda.current_device()), items)
    return Prefetcher(items)


def _produce(source: Iterator[Item], asked_for: SimpleQueue[futures.Future[Item] | None]) -> None:
    while (item := asked_for.get()) is not None:
        try:
            item.set_result(next(source))
        except BaseException as error:  # noqa: BLE001  whatever it is, and the end too, is the reader's
            item.set_exception(error)
            return


def _pin_for(gpu: int, batch: Any) -> Any:
    with torch.cuda.device(gpu):  # every thread has a device of its own, and begins with the first
        return _map_tensors(batch, Tensor.pin_memory)


def to_device(batch: Item, device: torch.device) -> Item:
    """Return a batch of the same structure whose tensors lie on a device; pinned ones are copied without waiting."""
    moved: Item = _map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))
    return moved


def _map_tensors(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, list):
        return [_map_tensors(part, change) for part in batch]
    if isinstance(batch, tuple):
        parts: Any = [_map_tensors(part, change) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    return batch

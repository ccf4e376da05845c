"""Batches made ready by a thread while the step before them trains."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")

_READY = 2


def ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Pass items on; the next two are made meanwhile. What making them raises is raised here, in its turn."""
    source, end = iter(items), object()
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as maker:
        ready: deque[Future[Item | object]] = deque(maker.submit(next, source, end) for _ in range(_READY))
        while (item := ready.popleft().result()) is not end:
            ready.append(maker.submit(next, source, end))
            yield item  # type: ignore[misc]

"""A load: clients that each ask for one text at a time, and ask again as soon as they are answered."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from benchmarks.serving.turns import percentile

Asked = TypeVar("Asked")


class Load(NamedTuple):
    """Rate and latency of a load."""

    texts_per_s: float
    p50_ms: float
    p95_ms: float

    def plain(self) -> dict[str, float]:
        """Return it as JSON values."""
        return {name: round(value, 3) for name, value in self._asdict().items()}


async def load(answer: Callable[[Asked], Awaitable[Any]], asked: Sequence[Asked], clients: int) -> Load:
    """Ask everything once, by so many clients at a time."""
    left, took_ms = iter(asked), list[float]()

    async def client() -> None:
        for one in left:
            began = time.perf_counter()
            await answer(one)
            took_ms.append(1000 * (time.perf_counter() - began))

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    elapsed_s = time.perf_counter() - began
    return Load(len(asked) / elapsed_s, percentile(took_ms, 0.5), percentile(took_ms, 0.95))

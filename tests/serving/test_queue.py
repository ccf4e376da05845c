"""The queue on a body that the test holds: what shares a batch, who goes first, and who is refused."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event

import pytest

from lingraft.errors import OverloadedError
from lingraft.serving.queue import MIN_FILL, BatchQueue, BatchStats, QueueLimits

BOUNDS = QueueLimits(batch_texts=4, batch_tokens=1000, wait_s=0.0, waiting_texts=100)


class Row(str):
    """A row whose tokens are its characters."""

    __slots__ = ()


@dataclass
class Body:
    """Answers a row with its own letters in capitals, once the test lets it go on; keeps what it was given."""

    batches: list[tuple[str, list[str]]] = field(default_factory=list)
    told: list[BatchStats] = field(default_factory=list)
    free: Event = field(default_factory=Event)

    def run(self, snapshot: str, rows: Sequence[Row]) -> list[str]:
        self.batches.append((snapshot, list(rows)))
        assert self.free.wait(30)
        if "bad" in rows:
            raise ArithmeticError("overflow")
        return [f"{snapshot}:{row.upper()}" for row in rows]


RunQueue = Callable[[Body, QueueLimits, Callable[[BatchQueue[Row, str, str]], Awaitable[None]]], None]


@pytest.fixture
def with_queue() -> Iterator[RunQueue]:
    """Run a test's coroutine beside a working queue."""
    with ThreadPoolExecutor(1) as executor:

        def run(body: Body, bounds: QueueLimits, test: Callable[[BatchQueue[Row, str, str]], Awaitable[None]]) -> None:
            async def both() -> None:
                queue = BatchQueue(body.run, bounds, executor, body.told.append)
                work = asyncio.create_task(queue.work())
                try:
                    await asyncio.wait_for(test(queue), 30)
                finally:
                    body.free.set()
                    work.cancel()

            asyncio.run(both())

        yield run


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def rows(*texts: str) -> list[Row]:
    return [Row(text) for text in texts]


def test_each_row_gets_its_own_output_in_the_order_asked(with_queue: RunQueue) -> None:
    async def test(queue: BatchQueue[Row, str, str]) -> None:
        given = rows("a" * 90, "b", "c" * 40, "d" * 90, "e", "f" * 41)
        assert await queue.outputs("v1", given) == [f"v1:{row.upper()}" for row in given]

    body = Body()
    body.free.set()
    with_queue(body, BOUNDS, test)
    assert sorted(row for _, batch in body.batches for row in batch) == sorted(
        ["a" * 90, "b", "c" * 40, "d" * 90, "e", "f" * 41]
    )


def test_requests_that_wait_together_share_a_batch_with_those_of_their_length(with_queue: RunQueue) -> None:
    async def test(queue: BatchQueue[Row, str, str]) -> None:
        first = asyncio.create_task(queue.outputs("v1", rows("x")))
        await until(lambda: len(body.batches) == 1)
        others = [
            asyncio.create_task(queue.outputs("v1", rows(text))) for text in ("a" * 100, "b" * 20, "c" * 98, "d" * 19)
        ]
        await until(lambda: len(queue) == 4)
        body.free.set()
        await asyncio.gather(first, *others)

    body = Body()
    with_queue(body, BOUNDS, test)
    assert [batch for _, batch in body.batches] == [["x"], ["a" * 100, "c" * 98], ["b" * 20, "d" * 19]]
    assert [(batch.texts, batch.tokens, batch.places) for batch in body.told] == [(1, 1, 1), (2, 198, 200), (2, 39, 40)]


@pytest.mark.parametrize("lengths", [[10, 20, 300, 310, 40, 500, 499, 90] * 5, list(range(1, 200, 7))])
def test_no_batch_is_larger_or_emptier_than_allowed(with_queue: RunQueue, lengths: list[int]) -> None:
    async def test(queue: BatchQueue[Row, str, str]) -> None:
        await queue.outputs("v1", [Row("a" * length) for length in lengths])

    body = Body()
    body.free.set()
    bounds = BOUNDS._replace(batch_texts=8, batch_tokens=700)
    with_queue(body, bounds, test)
    for _, batch in body.batches:
        sizes = [max(16, len(row)) for row in batch]
        assert len(batch) <= 8
        assert len(batch) == 1 or len(batch) * max(sizes) <= 700
        assert sum(sizes) >= MIN_FILL * len(batch) * max(sizes)


def test_a_short_request_does_not_wait_for_all_of_a_long_one(with_queue: RunQueue) -> None:
    async def test(queue: BatchQueue[Row, str, str]) -> None:
        long = asyncio.create_task(queue.outputs("v1", [Row("a" * 50)] * 12))
        await until(lambda: len(body.batches) == 1)
        # Of another length, so that it could not join the long request's batches.
        short = asyncio.create_task(queue.outputs("v1", rows("b" * 400)))
        await until(lambda: len(queue) == 9)
        body.free.set()
        await asyncio.gather(long, short)

    body = Body()
    with_queue(body, BOUNDS, test)
    assert [batch[0][0] for _, batch in body.batches] == ["a", "b", "a", "a"]


def test_a_long_request_is_answered_though_short_ones_go_on_coming(with_queue: RunQueue) -> None:
    async def test(queue: BatchQueue[Row, str, str]) -> None:
        coming = [asyncio.create_task(queue.outputs("v1", rows("x"))) for _ in range(3)]
        long = asyncio.create_task(queue.outputs("v1", rows("aa", "bb", "cc", "dd")))
        body.free.set()
        while not long.done():  # three others wait at any time
            coming += [asyncio.create_task(queue.outputs("v1", rows("x"))) for _ in range(3 - min(3, len(queue)))]
            await asyncio.sleep(0)
            assert len(body.batches) < 60
        await asyncio.gather(*coming)

    body = Body()
    with_queue(body, BOUNDS._replace(batch_texts=1), test)
    assert [row for _, batch in body.batches for row in batch].count("dd") == 1


def test_snapshots_of_a_bundle_are_not_mixed_in_a_batch(with_queue: RunQueue) -> None:
    async def test(queue: BatchQueue[Row, str, str]) -> None:
        first = asyncio.create_task(queue.outputs("old", rows("x")))
        await until(lambda: len(body.batches) == 1)
        pairs = [("old", "a"), ("new", "b"), ("old", "c"), ("new", "d")]
        others = [asyncio.create_task(queue.outputs(version, rows(text))) for version, text in pairs]
        await until(lambda: len(queue) == 4)
        body.free.set()
        assert await asyncio.gather(first, *others) == [["old:X"], ["old:A"], ["new:B"], ["old:C"], ["new:D"]]

    body = Body()
    with_queue(body, BOUNDS, test)
    assert body.batches[1:] == [("old", ["a", "c"]), ("new", ["b", "d"])]


def test_a_batch_is_held_open_until_it_is_full_or_its_oldest_row_has_waited(with_queue: RunQueue) -> None:
    async def test(queue: BatchQueue[Row, str, str]) -> None:
        asked = [asyncio.create_task(queue.outputs("v1", rows(text))) for text in "abc"]
        await asyncio.sleep(0.05)
        assert not body.batches
        asked.append(asyncio.create_task(queue.outputs("v1", rows("d"))))
        await asyncio.gather(*asked)
        assert body.batches == [("v1", ["a", "b", "c", "d"])]

    body = Body()
    body.free.set()
    with_queue(body, BOUNDS._replace(wait_s=20.0), test)

    async def lonely(queue: BatchQueue[Row, str, str]) -> None:
        assert await queue.outputs("v1", rows("a")) == ["v1:A"]

    with_queue(body, BOUNDS._replace(wait_s=0.05), lonely)


def test_what_does_not_fit_is_refused_with_a_time_and_what_waits_is_answered(with_queue: RunQueue) -> None:
    async def test(queue: BatchQueue[Row, str, str]) -> None:
        first = asyncio.create_task(queue.outputs("v1", rows("x")))
        await until(lambda: len(body.batches) == 1)
        waiting = asyncio.create_task(queue.outputs("v1", rows("a", "b", "c")))
        await until(lambda: len(queue) == 3)
        with pytest.raises(OverloadedError, match="3 texts wait already, and at most 4 may") as refused:
            await queue.outputs("v1", rows("d", "e"))
        assert 1 <= refused.value.retry_after_s <= 60
        body.free.set()
        assert await waiting == ["v1:A", "v1:B", "v1:C"]
        await first

    body = Body()
    with_queue(body, BOUNDS._replace(waiting_texts=4), test)


def test_a_cancelled_request_leaves_the_queue(with_queue: RunQueue) -> None:
    async def test(queue: BatchQueue[Row, str, str]) -> None:
        first = asyncio.create_task(queue.outputs("v1", rows("x")))
        await until(lambda: len(body.batches) == 1)
        gone, stays = (asyncio.create_task(queue.outputs("v1", rows(text, text))) for text in "ab")
        await until(lambda: len(queue) == 4)
        gone.cancel()
        await until(lambda: len(queue) == 2)
        body.free.set()
        assert await stays == ["v1:B", "v1:B"]
        await first

    body = Body()
    with_queue(body, BOUNDS, test)
    assert body.batches == [("v1", ["x"]), ("v1", ["b", "b"])]


def test_a_body_s_failure_is_told_to_its_batch_alone(with_queue: RunQueue) -> None:
    async def test(queue: BatchQueue[Row, str, str]) -> None:
        with pytest.raises(ArithmeticError, match="overflow"):
            await queue.outputs("v1", rows("bad", "b"))
        assert await queue.outputs("v1", rows("good")) == ["v1:GOOD"]
        assert len(queue) == 0

    body = Body()
    body.free.set()
    with_queue(body, BOUNDS, test)

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


Queue = BatchQueue[Row, str, str]
Test = Callable[[Queue, Body], Awaitable[None]]
RunTest = Callable[..., Body]


@pytest.fixture
def run_test() -> Iterator[RunTest]:
    """Run a test's coroutine beside a working queue, and return the body, which is held until the test frees it."""
    with ThreadPoolExecutor(1) as executor:

        def run(test: Test, bounds: QueueLimits = BOUNDS, is_held: bool = True) -> Body:
            async def both() -> None:
                queue = BatchQueue(body.run, bounds, executor, body.told.append)
                work = asyncio.create_task(queue.work())
                try:
                    await asyncio.wait_for(test(queue, body), 30)
                finally:
                    body.free.set()
                    work.cancel()

            body = Body()
            if not is_held:
                body.free.set()
            asyncio.run(both())
            return body

        yield run


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def rows(*texts: str) -> list[Row]:
    return [Row(text) for text in texts]


def ask(queue: Queue, *texts: str, snapshot: str = "v1") -> asyncio.Task[list[str]]:
    return asyncio.create_task(queue.outputs(snapshot, rows(*texts)))


async def held_request(queue: Queue, body: Body) -> asyncio.Task[list[str]]:
    request = ask(queue, "x")
    await until(lambda: len(body.batches) == 1)
    return request


def test_requests_that_wait_together_share_a_batch_with_those_of_their_length(run_test: RunTest) -> None:
    async def test(queue: Queue, body: Body) -> None:
        first = await held_request(queue, body)
        others = [ask(queue, text) for text in ("a" * 100, "b" * 20, "c" * 98, "d" * 19)]
        await until(lambda: len(queue) == 4)
        body.free.set()
        await asyncio.gather(first, *others)

    body = run_test(test)
    assert [batch for _, batch in body.batches] == [["x"], ["a" * 100, "c" * 98], ["b" * 20, "d" * 19]]
    assert [(batch.texts, batch.tokens, batch.places) for batch in body.told] == [(1, 1, 1), (2, 198, 200), (2, 39, 40)]


@pytest.mark.parametrize("lengths", [[10, 20, 300, 310, 40, 500, 499, 90] * 5, list(range(1, 200, 7))])
def test_no_batch_is_larger_or_emptier_than_allowed(run_test: RunTest, lengths: list[int]) -> None:
    async def test(queue: Queue, body: Body) -> None:
        await queue.outputs("v1", [Row("a" * length) for length in lengths])

    body = run_test(test, BOUNDS._replace(batch_texts=8, batch_tokens=700), is_held=False)
    for _, batch in body.batches:
        sizes = [max(16, len(row)) for row in batch]
        assert len(batch) <= 8
        assert len(batch) == 1 or len(batch) * max(sizes) <= 700
        assert sum(sizes) >= MIN_FILL * len(batch) * max(sizes)


def test_a_short_request_does_not_wait_for_all_of_a_long_one(run_test: RunTest) -> None:
    async def test(queue: Queue, body: Body) -> None:
        long = asyncio.create_task(queue.outputs("v1", [Row("a" * 50)] * 12))
        await until(lambda: len(body.batches) == 1)
        # Of another length, so that it could not join the long request's batches.
        short = ask(queue, "b" * 400)
        await until(lambda: len(queue) == 9)
        body.free.set()
        await asyncio.gather(long, short)

    body = run_test(test)
    assert [batch[0][0] for _, batch in body.batches] == ["a", "b", "a", "a"]


def test_a_long_request_is_answered_though_short_ones_go_on_coming(run_test: RunTest) -> None:
    async def test(queue: Queue, body: Body) -> None:
        coming = [ask(queue, "x") for _ in range(3)]
        long = ask(queue, "aa", "bb", "cc", "dd")
        body.free.set()
        while not long.done():  # three others wait at any time
            coming += [ask(queue, "x") for _ in range(3 - min(3, len(queue)))]
            await asyncio.sleep(0)
            assert len(body.batches) < 60
        await asyncio.gather(*coming)

    body = run_test(test, BOUNDS._replace(batch_texts=1))
    assert [row for _, batch in body.batches for row in batch].count("dd") == 1


def test_snapshots_of_a_bundle_are_not_mixed_in_a_batch(run_test: RunTest) -> None:
    async def test(queue: Queue, body: Body) -> None:
        first = await held_request(queue, body)
        pairs = [("old", "a"), ("new", "b"), ("old", "c"), ("new", "d")]
        others = [ask(queue, text, snapshot=version) for version, text in pairs]
        await until(lambda: len(queue) == 4)
        body.free.set()
        assert await asyncio.gather(first, *others) == [["v1:X"], ["old:A"], ["new:B"], ["old:C"], ["new:D"]]

    body = run_test(test)
    assert body.batches[1:] == [("old", ["a", "c"]), ("new", ["b", "d"])]


def test_a_batch_is_held_open_until_it_is_full_or_its_oldest_row_has_waited(run_test: RunTest) -> None:
    async def test(queue: Queue, body: Body) -> None:
        asked = [ask(queue, text) for text in "abc"]
        await asyncio.sleep(0.05)
        assert not body.batches
        asked.append(ask(queue, "d"))
        await asyncio.gather(*asked)
        assert body.batches == [("v1", ["a", "b", "c", "d"])]

    run_test(test, BOUNDS._replace(wait_s=20.0), is_held=False)

    async def lonely(queue: Queue, body: Body) -> None:
        assert await queue.outputs("v1", rows("a")) == ["v1:A"]

    run_test(lonely, BOUNDS._replace(wait_s=0.05), is_held=False)


def test_what_does_not_fit_is_refused_with_a_time_and_what_waits_is_answered(run_test: RunTest) -> None:
    async def test(queue: Queue, body: Body) -> None:
        first = await held_request(queue, body)
        waiting = ask(queue, "a", "b", "c")
        await until(lambda: len(queue) == 3)
        with pytest.raises(OverloadedError, match="3 texts wait already, and at most 4 may") as refused:
            await queue.outputs("v1", rows("d", "e"))
        assert 1 <= refused.value.retry_after_s <= 60
        body.free.set()
        assert await waiting == ["v1:A", "v1:B", "v1:C"]
        await first

    run_test(test, BOUNDS._replace(waiting_texts=4))


def test_a_cancelled_request_leaves_the_queue(run_test: RunTest) -> None:
    async def test(queue: Queue, body: Body) -> None:
        first = await held_request(queue, body)
        gone, stays = (ask(queue, text, text) for text in "ab")
        await until(lambda: len(queue) == 4)
        gone.cancel()
        await until(lambda: len(queue) == 2)
        body.free.set()
        assert await stays == ["v1:B", "v1:B"]
        await first

    body = run_test(test)
    assert body.batches == [("v1", ["x"]), ("v1", ["b", "b"])]


def test_a_body_s_failure_is_told_to_its_batch_alone(run_test: RunTest) -> None:
    async def test(queue: Queue, body: Body) -> None:
        with pytest.raises(ArithmeticError, match="overflow"):
            await queue.outputs("v1", rows("bad", "b"))
        assert await queue.outputs("v1", rows("good")) == ["v1:GOOD"]
        assert len(queue) == 0

    run_test(test, is_held=False)

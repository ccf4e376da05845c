"""Batches on a body that the test holds: what shares one, who goes first, and who is refused."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event

import pytest

from lingraft.errors import OverloadedError
from lingraft.serving.batching import BatchQueue, QueueLimits

BOUNDS = QueueLimits(batch_texts=4, batch_tokens=1000, wait_s=0.0, waiting_texts=100, min_fill=0.75)


class Row(str):
    __slots__ = ()


@dataclass
class Body:
    """Answers a row with its own letters in capitals, once the test lets it go on; keeps what it was given."""

    batches: list[tuple[str, list[str]]] = field(default_factory=list)
    free: Event = field(default_factory=Event)

    def run(self, snapshot: str, rows: Sequence[Row]) -> list[str]:
        self.batches.append((snapshot, list(rows)))
        assert self.free.wait(30)
        if "bad" in rows:
            raise ArithmeticError("overflow")
        return [f"{snapshot}:{row.upper()}" for row in rows]


Test = Callable[[BatchQueue, Body], Awaitable[None]]
RunTest = Callable[..., Body]


@pytest.fixture
def run_test() -> Iterator[RunTest]:
    """Run a test's coroutine beside a working queue, and return the body, which is held until the test frees it."""
    with ThreadPoolExecutor(1) as executor:

        def run(test: Test, bounds: QueueLimits = BOUNDS, is_held: bool = True) -> Body:
            async def both() -> None:
                try:
                    await asyncio.wait_for(test(BatchQueue(body.run, bounds, executor, lambda *_: None), body), 30)
                finally:
                    body.free.set()

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


def ask(queue: BatchQueue, *texts: str, snapshot: str = "v1") -> asyncio.Task[list[str]]:
    return asyncio.create_task(queue.outputs(snapshot, rows(*texts)))


async def held_request(queue: BatchQueue, body: Body) -> asyncio.Task[list[str]]:
    request = ask(queue, "x")
    await until(lambda: len(body.batches) == 1)
    return request


def test_requests_that_wait_together_share_a_batch_with_those_of_their_length(run_test: RunTest) -> None:
    async def test(queue: BatchQueue, body: Body) -> None:
        first = await held_request(queue, body)
        others = [ask(queue, text) for text in ("a" * 100, "b" * 20, "c" * 98, "d" * 19)]
        await until(lambda: len(queue) == 4)
        body.free.set()
        await asyncio.gather(first, *others)

    body = run_test(test)
    assert [batch for _, batch in body.batches] == [["x"], ["a" * 100, "c" * 98], ["b" * 20, "d" * 19]]


@pytest.mark.parametrize("lengths", [[10, 20, 300, 310, 40, 500, 499, 90] * 5, list(range(1, 200, 7))])
def test_no_batch_is_larger_or_emptier_than_allowed(run_test: RunTest, lengths: list[int]) -> None:
    async def test(queue: BatchQueue, body: Body) -> None:
        await queue.outputs("v1", [Row("a" * length) for length in lengths])

    body = run_test(test, BOUNDS._replace(batch_texts=8, batch_tokens=700), is_held=False)
    for _, batch in body.batches:
        sizes = [max(16, len(row)) for row in batch]
        assert len(batch) <= 8
        assert len(batch) == 1 or len(batch) * max(sizes) <= 700
        assert sum(sizes) >= BOUNDS.min_fill * len(batch) * max(sizes)


def test_a_short_request_does_not_wait_for_all_of_a_long_one_whose_outputs_keep_their_order(run_test: RunTest) -> None:
    async def test(queue: BatchQueue, body: Body) -> None:
        letters = "abcdefghijklmnopqrst"
        long = ask(queue, *(letter * (50 - place) for place, letter in enumerate(letters)))
        await until(lambda: len(body.batches) == 1)
        short = ask(queue, "z" * 400)  # of another length, so that it could not join the long request's batches
        await until(lambda: len(queue) == 5)
        body.free.set()
        await short
        assert not long.done()
        assert [output[3] for output in await long] == list(letters.upper())

    body = run_test(test)
    assert [row[0] for _, batch in body.batches for row in batch].index("z") <= 8


def test_snapshots_of_a_bundle_are_not_mixed_in_a_batch(run_test: RunTest) -> None:
    async def test(queue: BatchQueue, body: Body) -> None:
        first = await held_request(queue, body)
        pairs = [("old", "a"), ("new", "b"), ("old", "c"), ("new", "d")]
        others = [ask(queue, text, snapshot=version) for version, text in pairs]
        await until(lambda: len(queue) == 4)
        body.free.set()
        assert await asyncio.gather(first, *others) == [["v1:X"], ["old:A"], ["new:B"], ["old:C"], ["new:D"]]

    body = run_test(test)
    assert body.batches[1:] == [("old", ["a", "c"]), ("new", ["b", "d"])]


def test_a_batch_is_held_open_until_it_is_full_or_its_oldest_row_has_waited(run_test: RunTest) -> None:
    async def test(queue: BatchQueue, body: Body) -> None:
        asked = [ask(queue, text) for text in "abc"]
        await asyncio.sleep(0.05)
        assert not body.batches
        asked.append(ask(queue, "d"))
        await asyncio.gather(*asked)
        assert body.batches == [("v1", ["a", "b", "c", "d"])]

    run_test(test, BOUNDS._replace(wait_s=20.0), is_held=False)

    async def lonely(queue: BatchQueue, body: Body) -> None:
        assert await queue.outputs("v1", rows("a")) == ["v1:A"]

    run_test(lonely, BOUNDS._replace(wait_s=0.05), is_held=False)


def test_what_does_not_fit_is_refused_and_what_waits_is_answered(run_test: RunTest) -> None:
    async def test(queue: BatchQueue, body: Body) -> None:
        first = await held_request(queue, body)
        waiting = ask(queue, "a", "b", "c")
        await until(lambda: len(queue) == 3)
        with pytest.raises(OverloadedError, match="3 texts wait already, and at most 4 may"):
            await queue.outputs("v1", rows("d", "e"))
        body.free.set()
        assert await waiting == ["v1:A", "v1:B", "v1:C"]
        await first

    run_test(test, BOUNDS._replace(waiting_texts=4))


def test_a_cancelled_request_leaves_the_queue(run_test: RunTest) -> None:
    async def test(queue: BatchQueue, body: Body) -> None:
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
    async def test(queue: BatchQueue, body: Body) -> None:
        with pytest.raises(ArithmeticError, match="overflow"):
            await queue.outputs("v1", rows("bad", "b"))
        assert await queue.outputs("v1", rows("good")) == ["v1:GOOD"]
        assert len(queue) == 0

    run_test(test, is_held=False)

"""The queue of points before a server that is down, slow or refuses; what stands for the server is a function."""

import itertools
import threading
from collections.abc import Sequence

import pytest

from lingraft.errors import TrackingError
from lingraft.tracking.client import UnreachableError
from lingraft.tracking.metrics_queue import LIMIT, MetricsQueue

LONG_S = 60.0


class Server:
    """Takes batches, or raises what it is told to; a test waits for what it did, not for time to pass."""

    def __init__(self) -> None:
        self.arrived: list[int] = []
        self.attempts = 0
        self.error: TrackingError | None = None
        self.let_through = threading.Event()
        self.let_through.set()
        self._changed = threading.Condition()

    def send(self, batch: Sequence[int]) -> None:
        with self._changed:
            self.attempts += 1
            error = self.error
            self._changed.notify_all()
        assert self.let_through.wait(LONG_S)
        if error:
            raise error
        self.arrived += batch

    def wait_for_attempts(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.attempts >= count, LONG_S)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr("lingraft.tracking.metrics_queue.backoff", lambda: itertools.repeat(0.001))
    return Server()


def test_who_brings_a_point_does_not_wait_and_what_piled_up_goes_in_few_batches(server: Server) -> None:
    server.let_through.clear()
    outbox = MetricsQueue(server.send, batch_points=250)
    outbox.add(0)
    server.wait_for_attempts(1)
    for point in range(1, 5001):
        outbox.add(point)
    assert (server.arrived, server.attempts) == ([], 1)
    server.let_through.set()
    assert outbox.close(LONG_S).count == 0
    assert (server.arrived, server.attempts) == ([*range(5001)], 21)


def test_a_batch_is_sent_again_until_it_arrives(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.error = UnreachableError("it is down.")
    outbox = MetricsQueue(server.send, batch_points=2)
    for point in range(5):
        outbox.add(point)
    server.wait_for_attempts(3)
    server.error = None
    assert outbox.close(LONG_S).count == 0
    assert server.arrived == [*range(5)]
    said = capsys.readouterr().err
    assert said.count("it is down. Training goes on") == 1
    assert said.count("Tracking answers again") == 1


def test_a_server_that_stays_down_is_left_after_the_time_given(server: Server) -> None:
    server.error = UnreachableError("it is down.")
    outbox = MetricsQueue(server.send, batch_points=2)
    for point in range(5):
        outbox.add(point)
    server.wait_for_attempts(2)
    lost = outbox.close(0.01)
    assert (lost.points, lost.dropped, lost.error) == ([*range(5)], 0, server.error)


def test_a_server_that_refuses_is_not_waited_for_at_the_end_but_may_change_its_mind_before(server: Server) -> None:
    server.error = TrackingError("the run is gone.")
    outbox = MetricsQueue(server.send, batch_points=2)
    outbox.add(1)
    server.wait_for_attempts(2)
    server.error = None
    server.wait_for_attempts(3)
    outbox.add(2)
    assert outbox.close(LONG_S).count == 0
    assert server.arrived == [1, 2]
    refused = MetricsQueue(server.send, batch_points=2)
    server.error = TrackingError("the run is gone.")
    refused.add(3)
    lost = refused.close(LONG_S)
    assert (lost.points, lost.error) == ([3], server.error)


def test_the_end_cuts_a_pause_short(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lingraft.tracking.metrics_queue.backoff", lambda: itertools.repeat(3600.0))
    server.error = UnreachableError("it is down.")
    outbox = MetricsQueue(server.send, batch_points=2)
    outbox.add(1)
    server.wait_for_attempts(1)
    server.error = None
    assert outbox.close(LONG_S).count == 0
    assert (server.arrived, server.attempts) == ([1], 2)


def test_more_points_than_there_is_room_for_are_counted(server: Server) -> None:
    server.let_through.clear()
    outbox = MetricsQueue(server.send, batch_points=2, limit=10)
    for point in range(15):
        outbox.add(point)
    server.let_through.set()
    lost = outbox.close(LONG_S)
    assert (server.arrived, lost.points, lost.dropped, lost.count) == ([*range(10)], [], 5, 5)
    assert LIMIT >= 100_000

"""What Prometheus hears of a training: asked over HTTP, as it asks."""

import socket
import urllib.request

import pytest

from lingraft import metrics
from lingraft.plan import Progress


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """At which to answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = int(probe.getsockname()[1])
    monkeypatch.setenv(metrics.PORT, str(free))
    return free


def _asked(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_where_nobody_asks_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(metrics.PORT, raising=False)
    seen: list[Progress] = []
    watch = seen.append
    assert metrics.exposed("adapt-tr-2", watch) is watch


def test_points_are_told_to_whoever_asks_and_passed_on(port: int) -> None:
    seen: list[Progress] = []
    watch = metrics.exposed("adapt-tr-2", seen.append)
    began = _asked(port)['lingraft_training_point_timestamp_seconds{stage="adapt-tr-2"}']
    point = Progress(20, 10240, 4e9, 3.0, 3.25, 5e-4, left_out_steps=2)
    watch(point)
    assert seen == [point]
    told = _asked(port)
    for name, value in {"step": 20, "tokens": 10240, "loss": 3.25, "left_out_steps": 2}.items():
        assert told[f'lingraft_training_{name}{{stage="adapt-tr-2"}}'] == value
    assert told['lingraft_training_point_timestamp_seconds{stage="adapt-tr-2"}'] > began
    metrics.exposed("adapt-tr-4", seen.append)
    assert 'lingraft_training_point_timestamp_seconds{stage="adapt-tr-4"}' in _asked(port)


def test_a_port_that_is_taken_holds_up_no_training(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("", port))
        taken.listen()
        seen: list[Progress] = []
        watch = seen.append
        assert metrics.exposed("pretrain", watch) is watch
    assert f"port {port} cannot be listened at" in capsys.readouterr().err

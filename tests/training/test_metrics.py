"""What Prometheus hears of a training."""

import socket

import pytest

from lingraft.errors import TrainingError
from lingraft.training import metrics
from lingraft.training.schedule import TrainingMetrics, ignore_metrics
from lingraft.training.training_state import TrainingState
from tests.prometheus import asked, port_for_metrics
from tests.training.test_loop_endings import planned, trained


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """At which to answer."""
    return port_for_metrics(monkeypatch)


def test_where_nobody_asks_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(metrics.PORT, raising=False)
    seen: list[TrainingMetrics] = []
    watch = seen.append
    assert metrics.expose_metrics("adapt-tr-2", watch) is watch


def test_points_are_told_to_whoever_asks_and_passed_on(port: int) -> None:
    seen: list[TrainingMetrics] = []
    watch = metrics.expose_metrics("adapt-tr-2", seen.append)
    began = asked(port)['lingraft_training_point_timestamp_seconds{stage="adapt-tr-2"}']
    point = TrainingMetrics(20, 10240, 4e9, 3.0, 3.25, 5e-4)
    watch(point)
    assert seen == [point]
    told = asked(port)
    for name, value in {"step": 20, "tokens": 10240, "loss": 3.25}.items():
        assert told[f'lingraft_training_{name}{{stage="adapt-tr-2"}}'] == value
    assert told['lingraft_training_point_timestamp_seconds{stage="adapt-tr-2"}'] > began
    metrics.expose_metrics("adapt-tr-4", seen.append)
    assert 'lingraft_training_point_timestamp_seconds{stage="adapt-tr-4"}' in asked(port)


def _left_out(port: int, stage: str) -> float:
    return asked(port)[f'lingraft_training_left_out_steps_total{{stage="{stage}"}}']


def test_steps_that_are_left_out_are_counted_though_no_point_is_ever_told(port: int) -> None:
    metrics.expose_metrics("pretrain", ignore_metrics)
    assert _left_out(port, "pretrain") == 0  # what rises is seen to rise only where its beginning was seen
    with pytest.raises(TrainingError):
        trained(planned(skipped_steps=2, log_every_steps=100), *range(1, 21))
    assert _left_out(port, "pretrain") == 3


def test_each_training_has_a_count_of_its_own_without_steps_of_before_an_interruption(port: int) -> None:
    for stage, bad in {"adapt-de-2": (7,), "adapt-sw-2": (7, 8)}.items():
        metrics.expose_metrics(stage, ignore_metrics)
        trained(planned(skipped_steps=5), *bad, state=TrainingState(skipped=[2, 3]))
    assert (_left_out(port, "adapt-de-2"), _left_out(port, "adapt-sw-2")) == (1, 2)


def test_a_port_that_is_taken_holds_up_no_training(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("", port))
        taken.listen()
        seen: list[TrainingMetrics] = []
        watch = seen.append
        assert metrics.expose_metrics("pretrain", watch) is watch
    assert f"port {port} cannot be listened at" in capsys.readouterr().err

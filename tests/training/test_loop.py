import functools
import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lingraft.errors import TrainingError
from lingraft.signals import StopRequest
from lingraft.training.loop import _forward_backward
from lingraft.training.schedule import Schedule, TrainingMetrics
from tests import plans
from tests.calls import Calls
from tests.plans import train

planned = functools.partial(plans.planned, steps=10, warmup_steps=4)
PLAN = planned()


class Loss(nn.Module):
    """A function of the batch as a module."""

    def __init__(self, of: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.of = of

    def forward(self, batch: Any) -> Tensor:
        return self.of(batch)


def ones(step: int) -> list[tuple[float, Tensor]]:
    """A stream of one batch a step."""
    return [(1.0, torch.ones(()))]


def numbered(step: int) -> list[tuple[float, Tensor]]:
    """A stream of the steps' own numbers."""
    return [(1.0, torch.tensor(float(step)))]


def shared(numbers: Sequence[Sequence[float]]) -> Callable[[int], list[tuple[float, Tensor]]]:
    """A stream of micro-batches, all of one share."""
    return lambda step: [(1 / len(numbers[step - 1]), torch.tensor(number)) for number in numbers[step - 1]]


def run(loss_of: Callable[[Any], Tensor], trained: list[nn.Parameter], plan: Schedule = PLAN) -> list[TrainingMetrics]:
    return list(train(Loss(loss_of), trained, ones, plan))


def weights(values: list[float] | list[list[float]] | float = 1.0) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values))


def test_the_learning_rate_rises_in_a_line_and_falls_in_a_line_to_nothing() -> None:
    plan = planned(steps=12, warmup_steps=4, learning_rate=1.0)
    rates = [plan.learning_rate_at(step) for step in range(1, 14)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    falls = [earlier - later for earlier, later in itertools.pairwise(rates[3:])]
    assert falls == pytest.approx([1 / 9] * 9)
    assert rates[12] == 0
    assert min(rates[:12]) > 0


@pytest.mark.parametrize("steps", [1, 2, 100])
def test_without_warm_up_training_begins_at_the_peak(steps: int) -> None:
    plan = planned(steps=steps, warmup_steps=0, learning_rate=0.5)
    assert plan.learning_rate_at(1) == 0.5
    assert 0 < plan.learning_rate_at(steps) <= 0.5


def test_the_schedule_is_what_the_optimizer_uses() -> None:
    weight, moved, before = weights(100.0), [], 100.0
    plan = planned(log_every_steps=1)
    for point in train(Loss(lambda _: weight * 1.0), [weight], ones, plan):
        moved.append(before - float(weight.detach()))
        before = float(weight.detach())
        assert point.learning_rate == plan.learning_rate_at(point.step)
    expected = [plan.learning_rate_at(step) for step in range(1, plan.steps + 1)]
    assert moved == pytest.approx(expected, rel=1e-3)


def test_points_come_every_so_many_steps_and_after_the_last() -> None:
    weight = weights()
    points = run(lambda _: weight**2, [weight])
    assert [point.step for point in points] == [4, 8, 10]
    assert [point.tokens for point in points] == [256, 512, 640]
    assert [point.flops for point in points] == [4e6, 8e6, 1e7]
    assert points[0].elapsed_s < points[1].elapsed_s < points[2].elapsed_s
    cost = points[-1].cost
    assert (cost.steps, cost.tokens, cost.flops, cost.elapsed_s) == points[-1][:4]
    stops = planned(stops=frozenset({1, 4, 7}))
    assert [point.step for point in run(lambda _: weight**2, [weight], stops)] == [1, 4, 7, 8, 10]


def test_a_points_loss_is_the_mean_since_the_point_before() -> None:
    weight = weights()
    points = list(train(Loss(lambda number: number + 0 * weight), [weight], numbered, PLAN))
    assert [point.loss for point in points] == [2.5, 6.5, 9.5]


def test_time_between_points_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count()
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    weight = weights()
    elapsed, plain = [], []
    for point in train(Loss(lambda _: weight**2), [weight], ones, PLAN):
        elapsed.append(point.elapsed_s)
        for _ in range(1000):
            next(now)
    for point in train(Loss(lambda _: weight**2), [weight], ones, PLAN):
        plain.append(point.elapsed_s)
    assert elapsed == plain
    assert elapsed[-1] < 100


def test_micro_batches_make_one_step_of_the_mean_of_their_gradients() -> None:
    seen: list[Tensor] = []
    weight = weights([1.0, -2.0])
    hook = register_optimizer_step_pre_hook(lambda *_: seen.append(weight.grad.clone()))
    stream = shared([[[1.0, 0.0], [3.0, 8.0], [5.0, 4.0]], [[2.0, 2.0], [4.0, 2.0], [0.0, 5.0]]])
    plan = planned(steps=2, warmup_steps=0, clip_norm=1e9, log_every_steps=1)
    points = list(train(Loss(lambda number: (weight * number).sum()), [weight], stream, plan))
    hook.remove()
    assert [gradient.tolist() for gradient in seen] == [pytest.approx([3.0, 4.0]), pytest.approx([2.0, 3.0])]
    assert [point.step for point in points] == [1, 2]
    assert points[0].loss == pytest.approx((1 + 3 - 16 + 5 - 8) / 3)


def test_a_micro_batch_is_clipped_with_its_whole_step() -> None:
    drawn, learned = [[9.0, -8.0]], []
    for stream in (shared(drawn), lambda step: [(1.0, torch.tensor(0.5))]):
        weight = weights([0.0])
        plan = planned(steps=1, warmup_steps=0, clip_norm=0.25)
        list(train(Loss(lambda number: (number * weight).sum()), [weight], stream, plan))  # noqa: B023
        learned.append(weight.tolist())
    assert learned[0] == learned[1] != [0.0]


def test_every_step_draws_anew_and_the_same_whenever_it_is_trained() -> None:
    def drawn() -> list[float]:
        weight, found = weights(), list[float]()

        def loss_of(_: Tensor) -> Tensor:
            found.append(float(torch.rand(())))
            return weight.square()

        run(loss_of, [weight])
        return found

    assert drawn() == (found := drawn())
    assert len(set(found)) == PLAN.steps


def bad_at(bad: float, *steps: int) -> Callable[[int], list[tuple[float, Tensor]]]:
    return lambda step: [(1.0, torch.tensor(bad if step in steps else 1.0))]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_training_with_what_to_do(bad: float) -> None:
    weight = weights()
    points = train(Loss(lambda number: number + 0 * weight), [weight], bad_at(bad, 6), PLAN)
    assert next(points).step == 4
    expected = r"not finite at step 6 of 10 \(learning rate 7\.14e-02\).* Lower the learning rate"
    with pytest.raises(TrainingError, match=expected):
        next(points)


def test_a_step_takes_nothing_from_the_host_to_the_device_of_its_loss() -> None:
    weight = nn.Parameter(torch.ones(2, device="meta"))
    micro_batches = [(0.5, torch.ones(2, device="meta"))] * 2
    with Calls() as calls:
        total = _forward_backward(
            model=Loss(lambda batch: (weight * batch).sum()),
            micro_batches=micro_batches,
            step=1,
            seed=PLAN.seed,
            autocast=nullcontext,
            stop=StopRequest(),
        )
    assert total is not None
    assert total.device.type == "meta"
    assert "sum" in calls.names
    assert "_to_copy" not in calls.names

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lingraft.errors import TrainingError
from lingraft.train import Plan, Progress, train

PLAN = Plan(
    steps=10,
    learning_rate=0.1,
    warmup_steps=4,
    weight_decay=0.0,
    clip_norm=1.0,
    log_every_steps=4,
    tokens_per_step=64,
    flops_per_step=1e6,
)


def planned(**changes: Any) -> Plan:
    return Plan(**(PLAN.__dict__ | changes))


def run(loss_of: Callable[[Tensor], Tensor], trained: list[nn.Parameter], plan: Plan = PLAN) -> list[Progress]:
    return list(train(loss_of, trained, itertools.repeat(torch.ones(())), plan, nullcontext))


def weights(values: list[float] | float = 1.0) -> nn.Parameter:
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
    for point in train(lambda _: weight * 1.0, [weight], itertools.repeat(None), plan, nullcontext):
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


def test_a_points_loss_is_the_mean_since_the_point_before() -> None:
    weight = weights()
    numbers: Iterator[Tensor] = (torch.tensor(float(number)) for number in itertools.count(1))
    points = list(train(lambda number: number + 0 * weight, [weight], numbers, PLAN, nullcontext))
    assert [point.loss for point in points] == [2.5, 6.5, 9.5]


def test_time_between_points_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count()
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    weight = weights()
    elapsed = []
    for point in train(lambda _: weight**2, [weight], itertools.repeat(None), PLAN, nullcontext):
        elapsed.append(point.elapsed_s)
        for _ in range(1000):
            next(now)
    assert elapsed == [1, 2, 3]


def test_only_what_is_to_be_trained_gets_a_gradient() -> None:
    trained, frozen = weights([1.0, 2.0]), weights([3.0, 4.0])
    frozen.requires_grad_(False)
    run(lambda _: (trained * frozen).sum(), [trained])
    assert frozen.tolist() == [3.0, 4.0]
    assert frozen.grad is None
    assert trained.tolist() != [1.0, 2.0]


def test_matrices_decay_and_vectors_do_not() -> None:
    matrix, vector = weights([[1.0, 1.0]]), weights([1.0, 1.0])
    run(lambda _: (matrix.sum() + vector.sum()) * 0, [matrix, vector], planned(weight_decay=0.5))
    assert vector.tolist() == [1.0, 1.0]
    assert float(matrix.detach().max()) < 1.0


def test_gradients_are_clipped_together() -> None:
    one, other = weights([3.0]), weights([4.0])
    clipped = []
    hook = register_optimizer_step_pre_hook(lambda *_: clipped.append([float(one.grad), float(other.grad)]))
    run(lambda _: (one * 300 + other * 400).sum(), [one, other], planned(steps=1, warmup_steps=0, clip_norm=2.0))
    hook.remove()
    assert clipped == [pytest.approx([1.2, 1.6], rel=1e-4)]


def test_micro_batches_make_one_step_of_the_mean_of_their_gradients() -> None:
    seen: list[Tensor] = []
    weight = weights([1.0, -2.0])
    hook = register_optimizer_step_pre_hook(lambda *_: seen.append(weight.grad.clone()))
    numbers = iter(torch.tensor([[1.0, 0.0], [3.0, 8.0], [5.0, 4.0], [2.0, 2.0], [4.0, 2.0], [0.0, 5.0]]))
    plan = planned(steps=2, warmup_steps=0, clip_norm=1e9, micro_batches=3, log_every_steps=1)
    points = list(train(lambda number: (weight * number).sum(), [weight], numbers, plan, nullcontext))
    hook.remove()
    assert [gradient.tolist() for gradient in seen] == [pytest.approx([3.0, 4.0]), pytest.approx([2.0, 3.0])]
    assert [point.step for point in points] == [1, 2]
    assert points[0].loss == pytest.approx((1 + 3 - 16 + 5 - 8) / 3)
    assert next(numbers, None) is None


@pytest.mark.parametrize("micro_batches", [2, 4])
def test_micro_batches_learn_what_the_whole_batch_does(micro_batches: int) -> None:
    drawn = torch.randn(10, 8, 3, generator=torch.Generator().manual_seed(1))
    learned = []
    for parts in (1, micro_batches):
        weight = weights([0.5, -0.5, 0.25])
        batches = (part for batch in drawn for part in batch.chunk(parts))
        points = list(
            train(
                lambda batch: ((batch * weight).sum(1) - 1).square().mean(),  # noqa: B023
                [weight],
                batches,
                planned(micro_batches=parts, weight_decay=0.1),
                nullcontext,
            )
        )
        learned.append((weight.detach(), [point.loss for point in points]))
    torch.testing.assert_close(learned[1][0], learned[0][0], rtol=0, atol=1e-5)
    assert learned[1][1] == pytest.approx(learned[0][1], rel=1e-5)


def test_a_micro_batch_is_clipped_with_its_whole_step() -> None:
    weight, clipped = weights([0.0]), []
    hook = register_optimizer_step_pre_hook(lambda *_: clipped.append(float(weight.grad)))
    numbers = iter([torch.tensor(9.0), torch.tensor(-8.0)])
    plan = planned(steps=1, warmup_steps=0, clip_norm=1.0, micro_batches=2)
    list(train(lambda number: (number * weight).sum(), [weight], numbers, plan, nullcontext))
    hook.remove()
    assert clipped == [pytest.approx(0.5)]


def test_points_come_at_the_stops_too() -> None:
    weight = weights()
    points = run(lambda _: weight**2, [weight], planned(stops=frozenset({1, 4, 7})))
    assert [point.step for point in points] == [1, 4, 7, 8, 10]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_not_finite_ends_training_with_what_to_do(bad: float) -> None:
    weight = weights()
    losses: Iterator[Tensor] = (torch.tensor(bad if step == 6 else 1.0) for step in itertools.count(1))
    points = train(lambda number: number + 0 * weight, [weight], losses, PLAN, nullcontext)
    assert next(points).step == 4
    with pytest.raises(TrainingError, match=r"the loss is -?(nan|inf) at step 8 of 10 .* Lower the learning rate"):
        next(points)


def test_training_stops_where_its_watcher_stops() -> None:
    seen = []
    weight = weights()
    points = train(lambda _: seen.append(1) or weight**2, [weight], itertools.repeat(None), PLAN, nullcontext)
    next(points)
    points.close()
    assert len(seen) == 4

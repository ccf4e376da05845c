"""How training ends: too many steps that are not finite, a dev score that does not rise, a budget, a stop."""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.errors import TrainingError
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.schedule import Schedule, TrainingMetrics
from lingraft.training.training_state import TrainingState
from tests import plans
from tests.plans import train

planned = functools.partial(plans.planned, steps=20, warmup_steps=0)
PLAN = planned()


class Numbers(NamedTuple):
    """A batch."""

    values_B: Tensor
    place: int


class Model(nn.Module):
    """A weight whose loss is steep, and not finite where a batch is not."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[3.0, -2.0]]))

    def forward(self, batch: Numbers) -> Tensor:
        return (self.weight * batch.values_B.mean()).square().sum()


def stream(*bad: int) -> Callable[[int], list[tuple[float, Numbers]]]:
    """Two micro-batches a step, of which the second is not finite at some steps."""

    def micro_batches(step: int) -> list[tuple[float, Numbers]]:
        draw = torch.Generator().manual_seed(step)
        values_4 = 1 + torch.rand(4, generator=draw)
        if step in bad:
            values_4[3] = math.nan
        return [(0.5, Numbers(half, 10 * step)) for half in values_4.chunk(2)]

    return micro_batches


def checkpointer(folder: Path, every_s: float = 1e-9) -> CheckpointManager:
    return CheckpointManager(folder, {"stage": "test"}, every_s)


def trained(plan: Schedule, *bad: int, **given: Any) -> tuple[Tensor, list[TrainingMetrics]]:
    model = Model()
    points = list(train(model, [model.weight], stream(*bad), plan, **given))
    return model.weight.detach(), points


def test_a_step_that_is_not_finite_is_left_out_and_no_other() -> None:
    model, seen = Model(), []
    for _ in train(model, [model.weight], stream(3, 7), planned(skipped_steps=2, log_every_steps=1)):
        seen.append(model.weight.detach().clone())
    equal = [step for step in range(2, 21) if torch.equal(seen[step - 1], seen[step - 2])]
    assert equal == [3, 7]
    assert seen[-1].isfinite().all()


def test_a_points_loss_leaves_out_what_is_not_finite_and_counts_it() -> None:
    _, with_bad = trained(planned(skipped_steps=1, log_every_steps=2, steps=4), 2)
    _, alone = trained(planned(log_every_steps=1, steps=4))
    assert with_bad[0].loss == alone[0].loss
    assert [point.left_out_steps for point in with_bad] == [1, 1]


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_as_many_steps_as_are_allowed_are_left_out_and_then_training_stops(tmp_path: Path, allowed: int) -> None:
    bad = [2, 5, 9, 13]
    trained(planned(skipped_steps=allowed), *bad[:allowed])
    rate = f"{planned().learning_rate_at(bad[allowed]):.2e}"
    expected = (
        rf"not finite at step {bad[allowed]} of 20 \(learning rate {rate}\), and {allowed} steps were left out before "
        rf"it, of {allowed} that may be\. Lower"
    )
    with pytest.raises(TrainingError, match=expected):
        trained(planned(skipped_steps=allowed), *bad, checkpointer=checkpointer(tmp_path))


def test_no_checkpoint_holds_what_is_not_finite(tmp_path: Path) -> None:
    owner = checkpointer(tmp_path)
    with pytest.raises(TrainingError):
        trained(PLAN, 5, checkpointer=owner)
    owner.wait()
    assert list(tmp_path.glob("step-*"))
    for place in tmp_path.glob("step-*"):
        kept = Artifact.load(place, Kind.TRAINING).tensors("state")
        assert all(tensor.isfinite().all() for name, tensor in kept.items() if name != "losses")


@pytest.mark.parametrize("bad", [(19, 20), (18, 19, 20)])
def test_training_does_not_end_in_steps_that_were_left_out(tmp_path: Path, bad: tuple[int, ...]) -> None:
    plan = planned(skipped_steps=5)
    for one in (19, 20):
        assert trained(plan, one)[1][-1].step == 20
    with pytest.raises(TrainingError, match=r"not finite at step 20 of 20 .*training ended\."):
        trained(plan, *bad, checkpointer=checkpointer(tmp_path, 1000))


@pytest.mark.parametrize("stop", [3, 4, 5])
def test_steps_left_out_before_a_checkpoint_are_known_to_who_goes_on_from_it(tmp_path: Path, stop: int) -> None:
    plan = planned(skipped_steps=3, log_every_steps=100)
    list(train(*half(stop, plan, tmp_path, 3, 4)))
    state = keeper_at(tmp_path, stop)
    assert state.skipped == [step for step in (3, 4) if step <= stop]
    assert torch.equal(trained(plan, 3, 4, state=state)[0], trained(plan, 3, 4)[0])
    with pytest.raises(TrainingError, match=r"at step 9 of 20 .* and 3 steps were left out before it"):
        trained(plan, 4, 7, 9, state=TrainingState(skipped=[3]))


def keeper_at(folder: Path, step: int) -> TrainingState:
    place = folder / f"step-{step:08d}"
    return checkpointer(folder)._read(place)[0]


@pytest.mark.parametrize("stop", [1, 4, 19, 20])
def test_who_goes_on_asks_for_the_next_step_first_and_arrives_at_the_same_bits(tmp_path: Path, stop: int) -> None:
    plan = planned(weight_decay=0.1)
    whole, all_points = trained(plan)
    list(train(*half(stop, plan, tmp_path)))
    asked: list[int] = []

    def noting(step: int) -> list[tuple[float, Numbers]]:
        asked.append(step)
        return stream()(step)

    state = keeper_at(tmp_path, stop)
    model = Model()
    points = [*state.points, *train(model, [model.weight], noting, plan, state)]
    assert asked == list(range(stop + 1, 21))
    assert torch.equal(model.weight, whole)
    assert [point[:3] + point[4:] for point in points] == [point[:3] + point[4:] for point in all_points]


def half(stop: int, plan: Schedule, folder: Path, *bad: int) -> tuple[Any, ...]:
    """Arguments of a training that keeps a checkpoint after every step, and whose watcher leaves after one of them."""
    model = Model()

    class UpTo(CheckpointManager):
        def save(self, state: TrainingState, last: bool = False) -> None:
            if state.step == stop:
                super().save(state, last)
                self.wait()

        def is_due(self) -> bool:
            return True

    owner = UpTo(folder, {"stage": "test"}, 1e-9)
    return model, [model.weight], stream(*bad), plan, None, owner

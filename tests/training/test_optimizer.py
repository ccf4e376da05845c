import math

import pytest
import torch
from torch import Tensor, nn

from lingraft.training.optimizer import ADAM_BETAS, ADAM_EPS, Optimizer

FINE = torch.tensor(1.0)


def weights() -> list[nn.Parameter]:
    draw = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(*shape, generator=draw)) for shape in ((40, 8), (8, 8), (8,), (1,))]


def give(parameters: list[nn.Parameter], step: int, scale: float = 1.0) -> None:
    draw = torch.Generator().manual_seed(step)
    for parameter in parameters:
        parameter.grad = scale * torch.randn(parameter.shape, generator=draw)


@pytest.mark.parametrize("scale", [0.01, 10.0])
def test_it_is_torchs_adamw_after_clip_grad_norm(scale: float) -> None:
    ours, theirs = weights(), weights()
    optimizer = Optimizer(ours, weight_decay=0.1, clip_norm=2.0)
    matrices, vectors = theirs[:2], theirs[2:]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, betas=ADAM_BETAS, eps=ADAM_EPS)
    for step in range(1, 51):
        rate = 0.01 * (51 - step) / 50
        give(ours, step, scale)
        give(theirs, step, scale)
        assert not stepped(optimizer, rate)
        nn.utils.clip_grad_norm_(theirs, 2.0)
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def stepped(optimizer: Optimizer, rate: float = 0.01, loss: Tensor = FINE) -> bool:
    """Clip and step; whether the step was skipped."""
    skipped = optimizer.clip(loss)
    optimizer.step(rate)
    return bool(skipped)


def tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in optimizer.tensors().items()}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_step_that_is_not_finite_changes_neither_weights_nor_moments(bad: float, where: str) -> None:
    parameters = weights()
    optimizer = Optimizer(parameters, weight_decay=0.1, clip_norm=1.0)
    give(parameters, 1)
    stepped(optimizer)
    before = tensors(optimizer)
    assert before.keys() > {"0000.weight", "0003.exp_avg_sq", "0001.step"}
    give(parameters, 2)
    if where == "gradient":
        assert parameters[1].grad is not None
        parameters[1].grad[3, 2] = bad
    assert stepped(optimizer, loss=torch.tensor(bad) if where == "loss" else FINE)
    after = tensors(optimizer)
    assert after.keys() == before.keys()
    assert [name for name in before if not torch.equal(after[name], before[name])] == []
    assert all(parameter.grad is None for parameter in parameters)


def test_the_first_step_may_be_the_one_that_is_left_out() -> None:
    ours, theirs = weights(), weights()
    one, other = (Optimizer(parameters, weight_decay=0.1, clip_norm=1.0) for parameters in (ours, theirs))
    give(ours, 1, math.inf)
    assert stepped(one)
    for optimizer, parameters in ((one, ours), (other, theirs)):
        give(parameters, 2)
        assert not stepped(optimizer)
    for mine, other_one in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other_one)


@pytest.mark.parametrize("steps_before", [0, 7])
def test_an_optimizer_that_is_restored_goes_on_to_the_same_bits(steps_before: int) -> None:
    whole, parted = weights(), weights()
    optimizer = Optimizer(whole, weight_decay=0.1, clip_norm=1.0)
    for step in range(1, 15):
        if step == steps_before + 1:
            kept = tensors(optimizer)
        give(whole, step)
        stepped(optimizer)
    again = Optimizer(parted, weight_decay=0.1, clip_norm=1.0)
    again.restore(kept)
    for step in range(steps_before + 1, 15):
        give(parted, step)
        stepped(again)
    assert all(torch.equal(one, other) for one, other in zip(whole, parted, strict=True))
    assert all(not torch.equal(tensor, again.tensors()[name]) for name, tensor in kept.items())


def give_rows(table: nn.Parameter, step: int, sparse: bool) -> None:
    """Give a gradient to six lookups of some rows, of which two are of the same one."""
    draw = torch.Generator().manual_seed(step)
    ids = torch.randperm(len(table), generator=draw)[:6]
    ids[1] = ids[0]
    wanted = torch.randn(6, table.shape[1], generator=draw)
    (nn.functional.embedding(ids, table, sparse=sparse) * wanted).sum().backward()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_table_is_updated_by_rows_as_torchs_sparse_adam_does(sparse: bool) -> None:
    """Clipping is that of the whole gradient, and a dense gradient, as several processes have, does the same."""
    ours, theirs = weights()[0], weights()[0]
    optimizer = Optimizer([ours], weight_decay=0.1, clip_norm=2.0, sparse_tables=[ours])
    reference = torch.optim.SparseAdam([theirs], betas=ADAM_BETAS, eps=ADAM_EPS)
    for step in range(1, 21):
        before = ours.detach().clone()
        give_rows(ours, step, sparse)
        assert not stepped(optimizer, 0.01 * step)
        give_rows(theirs, step, sparse=False)
        assert theirs.grad is not None
        has_gradient = theirs.grad.any(1)
        nn.utils.clip_grad_norm_([theirs], 2.0)
        theirs.grad = theirs.grad.to_sparse(1)
        reference.param_groups[0]["lr"] = 0.01 * step
        reference.step()
        theirs.grad = None
        assert torch.equal((ours != before).any(1), has_gradient)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_a_table_that_is_updated_by_rows_goes_on_bit_for_bit_from_its_moments() -> None:
    def trained(optimizer: Optimizer, steps: range) -> dict[str, Tensor]:
        for step in steps:
            give_rows(optimizer.parameters[0], step, sparse=True)
            stepped(optimizer)
        return tensors(optimizer)

    def fresh() -> Optimizer:
        table = weights()[0]
        return Optimizer([table], weight_decay=0.0, clip_norm=1.0, sparse_tables=[table])

    whole, resumed = trained(fresh(), range(1, 9)), fresh()
    resumed.restore(trained(fresh(), range(1, 5)))
    again = trained(resumed, range(5, 9))
    assert whole.keys() == again.keys() == {f"0000.{name}" for name in ("weight", "step", "exp_avg", "exp_avg_sq")}
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_a_table_that_is_updated_by_rows_skips_a_step_that_is_not_finite() -> None:
    table = weights()[0]
    optimizer = Optimizer([table], weight_decay=0.0, clip_norm=1.0, sparse_tables=[table])
    give_rows(table, 1, sparse=True)
    stepped(optimizer)
    before = tensors(optimizer)
    give_rows(table, 2, sparse=True)
    assert stepped(optimizer, loss=torch.tensor(math.nan))
    assert all(torch.equal(before[name], tensor) for name, tensor in tensors(optimizer).items())

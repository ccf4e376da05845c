import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lingraft.model.kernels import cross_entropy
from lingraft.model.kernels.cross_entropy import summed_cross_entropy

MASKED, WIDTH, VOCABULARY, IGNORED = 11, 16, 53, -100


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    sizes = (MASKED, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,)
    features, table, bias = (torch.randn(size, generator=generator).requires_grad_() for size in sizes)
    return features, table, bias


def targets() -> Tensor:
    found = torch.randint(VOCABULARY, (MASKED,), generator=torch.Generator().manual_seed(2))
    found[3] = IGNORED
    return found


def plain(features: Tensor, table: Tensor, bias: Tensor, wanted: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(features, table, bias).float(), wanted, reduction="sum", ignore_index=IGNORED)


def by_kernel(features: Tensor, table: Tensor, bias: Tensor, wanted: Tensor) -> Tensor:
    return summed_cross_entropy(features, table, bias, wanted, IGNORED)


@pytest.fixture
def in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows of logits and twenty of the table at a time."""
    monkeypatch.setattr(cross_entropy, "_CACHED_BYTES", 3 * 4 * VOCABULARY)
    monkeypatch.setattr(cross_entropy, "_TABLE_ROWS", 20)


@pytest.mark.usefixtures("in_portions")
def test_value_and_gradients_are_those_of_torch() -> None:
    ours, torchs = inputs(), inputs()
    found, expected = by_kernel(*ours, targets()), plain(*torchs, targets())
    torch.testing.assert_close(found, expected)
    (found / 7).backward()
    (expected / 7).backward()
    for mine, theirs in zip(ours, torchs, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.usefixtures("in_portions")
def test_bfloat16_is_no_further_from_float32_than_autocast_is() -> None:
    exact = inputs()
    plain(*exact, targets()).backward()
    distances = {}
    for loss_of in (by_kernel, plain):
        tensors = inputs()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss_of(*tensors, targets()).backward()
        distances[loss_of] = [
            float((one.grad - other.grad).norm() / other.grad.norm()) for one, other in zip(tensors, exact, strict=True)
        ]
    for mine, autocasts in zip(distances[by_kernel], distances[plain], strict=True):
        assert mine < 1.2 * autocasts + 1e-3


def test_extreme_logits_give_finite_losses_and_gradients() -> None:
    features, table, bias = inputs()
    scaled = (features * 1e3).detach().requires_grad_()
    found = by_kernel(scaled, table, bias, targets())
    torch.testing.assert_close(found, plain(scaled, table, bias, targets()))
    found.backward()
    assert all(tensor.grad.isfinite().all() for tensor in (scaled, table, bias))


@pytest.mark.parametrize("trained", [0, 1, 2])
def test_only_what_trains_gets_a_gradient(trained: int) -> None:
    tensors = [tensor.detach().requires_grad_(place == trained) for place, tensor in enumerate(inputs())]
    by_kernel(*tensors, targets()).backward()
    assert [tensor.grad is not None for tensor in tensors] == [place == trained for place in range(3)]


def test_no_targets_at_all_cost_nothing() -> None:
    tensors = inputs()
    found = by_kernel(*tensors, torch.full((MASKED,), IGNORED))
    found.backward()
    assert float(found.detach()) == 0.0
    assert not any(tensor.grad.any() for tensor in tensors)


@pytest.mark.parametrize("number_format", [torch.float32, torch.bfloat16])
def test_what_a_gpu_compiles_computes_the_same(number_format: torch.dtype) -> None:
    logits = 10 * torch.randn(MASKED, VOCABULARY, generator=torch.Generator().manual_seed(3))
    found = []
    for replace_ in (cross_entropy._rows_into_gradient_, cross_entropy._fused_rows_into_gradient_):
        gradient, counted = logits.to(number_format, copy=True), targets() != IGNORED
        total = replace_(gradient, targets().where(counted, 0)[:, None], counted[:, None].float())
        found.append((total, gradient))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)

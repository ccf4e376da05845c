import pytest
import torch
from torch import nn

from lingraft.training import precision

SENTENCE = r"precision (fp32|bf16): bf16 ([\d.]+) against fp32 ([\d.]+) forward and backward passes a second"


@pytest.fixture(autouse=True)
def _short_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_PROBE_S", 0.05)


def model() -> nn.Linear:
    return nn.Linear(64, 64).to(precision.device())


def output_of(layer: nn.Linear) -> torch.Tensor:
    return layer(torch.ones(8, 64, device=precision.device()))


def test_a_format_is_the_one_in_which_products_are_computed() -> None:
    layer = model()
    with precision.autocast("bf16")():
        assert output_of(layer).dtype == torch.bfloat16
    with precision.autocast("fp32")():
        assert output_of(layer).dtype == torch.float32
    assert output_of(layer).dtype == torch.float32


def test_weights_stay_in_float32() -> None:
    layer = model()
    with precision.autocast("bf16")():
        output_of(layer).float().sum().backward()
    assert layer.weight.dtype == layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("wanted", ["fp32", "bf16"])
def test_what_the_recipe_says_is_taken_without_a_probe(wanted: str) -> None:
    calls: list[int] = []
    found, reason = precision.choose_precision(wanted, lambda: calls.append(1) or torch.zeros(()), [])
    assert (found, calls) == (wanted, [])
    assert reason == f"precision {wanted}, as set"


@pytest.mark.parametrize(("bf16_s", "fp32_s", "faster"), [(0.01, 0.02, "bf16"), (0.02, 0.01, "fp32")])
def test_auto_takes_the_format_with_more_passes_a_second_by_the_clock(
    monkeypatch: pytest.MonkeyPatch, bf16_s: float, fp32_s: float, faster: str
) -> None:
    layer, now_s = model(), [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now_s[0])

    def loss() -> torch.Tensor:
        now_s[0] += bf16_s if torch.is_autocast_enabled(precision.device().type) else fp32_s
        return output_of(layer).float().sum()

    found, reason = precision.choose_precision("auto", loss, list(layer.parameters()))
    assert found == faster
    assert reason.startswith(f"precision {faster}: bf16 {1 / bf16_s:.1f} against fp32 {1 / fp32_s:.1f} forward and")


def test_a_probe_leaves_no_gradients() -> None:
    layer = model()
    precision.choose_precision("auto", lambda: output_of(layer).float().sum(), list(layer.parameters()))
    assert [parameter.grad for parameter in layer.parameters()] == [None, None]


def test_a_clear_difference_ends_the_probe_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_PROBE_S", 3600.0)
    weight = torch.ones((), requires_grad=True)
    clock, seconds = [0.0], {torch.float32: 1.0, torch.bfloat16: 3.0}
    monkeypatch.setattr(precision.time, "perf_counter", lambda: clock[0])

    def loss_of() -> torch.Tensor:
        product = torch.ones(2, 2) @ torch.ones(2, 2)
        clock[0] += seconds[product.dtype]
        return weight * product.float().sum()

    found, reason = precision.choose_precision("auto", loss_of, [])
    assert found == "fp32"
    assert reason.endswith("bf16 0.3 against fp32 1.0 forward and backward passes a second in a probe of 16.0 s")

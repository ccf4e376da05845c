import pytest
import torch
from torch import nn

from lingraft.training import precision


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


@pytest.mark.parametrize("wanted", ["fp32", "bf16"])
@pytest.mark.parametrize("capability", ["AVX2", "AVX512"])
def test_what_the_recipe_says_is_taken_without_a_probe(
    monkeypatch: pytest.MonkeyPatch, capability: str, wanted: str
) -> None:
    monkeypatch.setattr(precision, "device", lambda: torch.device("cpu"))
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: capability)
    found, reason = precision.choose_precision(wanted, lambda: pytest.fail("probed"), [])
    assert found == wanted
    assert reason.startswith(f"precision {wanted}, as set")
    is_slow = "though this CPU has no bfloat16 instructions (AVX2): fp32 would train many times as fast" in reason
    assert is_slow == ((capability, wanted) == ("AVX2", "bf16"))


@pytest.mark.parametrize(("bf16_s", "fp32_s", "faster"), [(1.0, 3.0, "bf16"), (3.0, 1.0, "fp32")])
def test_auto_takes_the_faster_format_by_the_clock_and_ends_early_where_it_is_clear(
    monkeypatch: pytest.MonkeyPatch, bf16_s: float, fp32_s: float, faster: str
) -> None:
    """Four rounds: the first one allocates, and three are the fewest that count."""
    layer, now_s = model(), [0.0]
    monkeypatch.setattr(precision, "_PROBE_S", 3600.0)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr("time.perf_counter", lambda: now_s[0])

    def loss() -> torch.Tensor:
        now_s[0] += bf16_s if torch.is_autocast_enabled(precision.device().type) else fp32_s
        return output_of(layer).float().sum()

    found, reason = precision.choose_precision("auto", loss, list(layer.parameters()))
    assert found == faster
    measured = f"bf16 {1 / bf16_s:.1f} against fp32 {1 / fp32_s:.1f} forward and backward passes a second"
    assert reason == f"precision {faster}: {measured} in a probe of 16.0 s"
    assert [parameter.grad for parameter in layer.parameters()] == [None, None]


def test_auto_is_fp32_without_a_probe_where_the_cpu_has_no_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "device", lambda: torch.device("cpu"))
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX2")
    found, reason = precision.choose_precision("auto", lambda: pytest.fail("probed"), [])
    assert found == "fp32"
    assert reason == "precision fp32: this CPU has no bfloat16 instructions (AVX2)"

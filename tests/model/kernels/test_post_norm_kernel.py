from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lingraft.config.encoder import Activation, EncoderShape, Family
from lingraft.model.encoder import Layer
from lingraft.model.kernels import attention
from lingraft.model.kernels.cpu import _FROZEN

BATCH, TOKENS, WIDTH = 3, 6, 8
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def made(dropout: float = 0.0, activation: Activation = "gelu", width: int = WIDTH) -> Layer:
    family = Family(activation=activation)
    shape = EncoderShape(
        width=width, layers=1, attention_heads=2, mlm_heads=(1,), block_tokens=8, dropout=dropout, family=family
    )
    layer = Layer(shape)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return layer.train()


def states(width: int = WIDTH) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(BATCH, TOKENS, width, generator=generator).requires_grad_()


def some_visible() -> Tensor:
    return (torch.arange(TOKENS) < torch.tensor([[6], [4], [1]]))[:, None, None, :]


def by_autograd(layer: Layer, hidden_BTD: Tensor, visible_B11T: Tensor | None) -> Tensor:
    """The layer as the paper's figures draw it, operation by operation."""
    query, key, value = (
        part.unflatten(-1, (layer.attention_heads, -1)).transpose(1, 2) for part in layer.qkv(hidden_BTD).chunk(3, -1)
    )
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if visible_B11T is not None:
        scores = scores.masked_fill(~visible_B11T, -torch.inf)
    mixed = (scores.softmax(-1).to(value.dtype) @ value).transpose(1, 2).flatten(2)
    between = layer.attention_norm(hidden_BTD + layer.attention_out(mixed))
    return layer.output_norm(between + layer.down(layer.activation.forward(layer.up(between))))


def gradients(forward: Callable[..., Tensor], layer: Layer, visible: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
    layer.zero_grad()
    hidden = states(layer.qkv.in_features)
    found = forward(layer, hidden, visible)
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(5))
    (found * weight).sum().backward()
    named = {name: parameter.grad for name, parameter in layer.named_parameters() if parameter.requires_grad}
    return found.detach(), named | {"hidden": hidden.grad}


def kernel(layer: Layer, hidden: Tensor, visible: Tensor | None) -> Tensor:
    return layer(hidden, visible)


@pytest.mark.parametrize("keeps_probabilities", [True, False])
@pytest.mark.parametrize("with_padding", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu"])
def test_a_trained_layer_is_autograds(
    activation: Activation, with_padding: bool, keeps_probabilities: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "SHORT_KEYS", TOKENS if keeps_probabilities else TOKENS - 1)
    monkeypatch.setattr(attention, "_SCORES_AT_ONCE", 2 * 2 * TOKENS**2 if keeps_probabilities else 1)
    layer, visible = made(activation=activation), some_visible() if with_padding else None
    values, found = gradients(kernel, layer, visible)
    expected_values, expected = gradients(by_autograd, layer, visible)
    torch.testing.assert_close(values, expected_values, **CLOSE)
    assert len(found) == 13
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, **CLOSE, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("keeps_probabilities", [True, False])
@pytest.mark.parametrize("with_padding", [False, True])
def test_gradients_under_dropout_are_those_of_finite_differences(
    with_padding: bool, keeps_probabilities: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "SHORT_KEYS", TOKENS if keeps_probabilities else TOKENS - 1)
    monkeypatch.setattr(attention, "_SCORES_AT_ONCE", 2 * 2 * TOKENS**2 if keeps_probabilities else 1)
    layer = made(dropout=0.3).double()
    visible = some_visible() if with_padding else None

    def dropped(hidden: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(6)
        found: Tensor = layer(hidden, visible)
        return found

    inputs = (states().detach().double().requires_grad_(), *layer.parameters())
    assert torch.autograd.gradcheck(dropped, inputs, fast_mode=True)


@pytest.mark.parametrize("keeps_probabilities", [True, False])
def test_bfloat16_is_no_further_from_float32_than_autocast_is(
    keeps_probabilities: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "SHORT_KEYS", TOKENS if keeps_probabilities else TOKENS - 1)
    layer = made(width=64)
    _, exact = gradients(by_autograd, layer, None)
    distances = {}
    for forward in (kernel, by_autograd):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            _, found = gradients(forward, layer, None)
        distances[forward] = {name: float((found[name] - exact[name]).norm() / exact[name].norm()) for name in exact}
    for name, distance in distances[kernel].items():
        assert distance < 1.5 * distances[by_autograd][name] + 1e-3, name


def test_frozen_weights_get_no_gradient_and_change_no_other() -> None:
    layer = made()
    _, whole = gradients(kernel, layer, None)
    layer.requires_grad_(False)
    _, found = gradients(kernel, layer, None)
    assert set(found) == {"hidden"}
    torch.testing.assert_close(found["hidden"], whole["hidden"])
    assert all(parameter.grad is None for parameter in layer.parameters())


def test_frozen_weights_are_cast_once_and_again_when_they_change() -> None:
    layer = made().requires_grad_(False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        before = layer(states(), None)
        casts = [id(_FROZEN[weight][1]) for weight in (layer.up.weight, layer.down.weight)]
        layer(states(), None)
        assert [id(_FROZEN[weight][1]) for weight in (layer.up.weight, layer.down.weight)] == casts
        layer.up.weight.mul_(2.0)
        assert not torch.equal(layer(states(), None), before)
    assert layer.up.weight.dtype == torch.float32


def test_inference_takes_the_fused_attention() -> None:
    layer, calls = made(), []
    original = F.scaled_dot_product_attention
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or original(*a, **k))
        inferred = layer(states(), None)
    assert calls == [1]
    torch.testing.assert_close(layer(states(), None).detach(), inferred, **CLOSE)

"""The kernel of a pre-norm layer: its values and gradients are those of plain operations under autograd."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lingraft.config.encoder import EncoderShape, Family
from lingraft.model import pre_norm
from lingraft.model.kernels import attention as kernels
from lingraft.model.pre_norm import Attention, PreNormLayer

BATCH, TOKENS, WIDTH = 3, 14, 16
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
REACHES = {"global": None, "band": 5, "blocks": 3, "whole blocks": 2}
"""Tokens to either side that a query sees: all; a band of all keys; blocks, the last of them short or whole."""


def shape(local: str, dropout: float = 0.0, bias: bool = False, width: int = WIDTH) -> EncoderShape:
    biases = dict.fromkeys(("attention_bias", "feedforward_bias", "norm_bias"), bias)
    settings = {"local_tokens": 2 * (REACHES[local] or 1), "global_every": 2, **biases}
    family = Family.model_validate({"separators": 1, "pre_norm": settings})
    return EncoderShape(
        width=width, layers=1, attention_heads=2, mlm_heads=(1,), block_tokens=16, dropout=dropout, family=family
    )


def made(of: EncoderShape, is_first: bool = False) -> PreNormLayer:
    layer = PreNormLayer(of, is_first)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return layer.train()


def attention(local: str, of: EncoderShape, with_padding: bool) -> Attention:
    tokens_BT = torch.zeros(BATCH, TOKENS, dtype=torch.long)
    visible_BT = (torch.arange(TOKENS) < torch.tensor([[14], [9], [1]])) if with_padding else None
    make = Attention.global_ if REACHES[local] is None else Attention.local
    return make(tokens_BT, of, pre_norm.pre_norm_of(of), visible_BT)


def states(width: int = WIDTH) -> Tensor:
    return torch.randn(BATCH, TOKENS, width, generator=torch.Generator().manual_seed(4)).requires_grad_()


def gradients(layer: PreNormLayer, sight: Attention, by_kernel: bool) -> tuple[Tensor, dict[str, Tensor]]:
    layer.zero_grad()
    hidden = states(layer.qkv.in_features)
    with pytest.MonkeyPatch.context() as patch:
        if not by_kernel:
            patch.setattr(pre_norm, "trains_by_kernel", lambda hidden: False)
        found = layer(hidden, sight)
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(5))
    (found * weight).sum().backward()
    named = {name: parameter.grad for name, parameter in layer.named_parameters() if parameter.requires_grad}
    return found.detach(), named | {"hidden": hidden.grad}


@pytest.fixture(params=[True, False], ids=["kept", "computed again"])
def probabilities(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep attention's probabilities for the backward pass, of two sequences at a time; or not, of one head."""
    monkeypatch.setattr(kernels, "SHORT_KEYS", TOKENS if request.param else 1)
    monkeypatch.setattr(kernels, "_SCORES_AT_ONCE", 2 * 2 * TOKENS**2 if request.param else 1)
    if not request.param:
        monkeypatch.setattr(kernels, "uses_torch_kernel", lambda packed, settings: False)


@pytest.mark.usefixtures("probabilities")
@pytest.mark.parametrize("with_padding", [False, True])
@pytest.mark.parametrize("local", REACHES)
def test_a_trained_layer_is_autograds(local: str, with_padding: bool) -> None:
    of = shape(local)
    layer, sight = made(of), attention(local, of, with_padding)
    assert (sight.block is None) == (local in ("global", "band"))
    expected_values, expected = gradients(layer, sight, by_kernel=False)
    values, found = gradients(layer, sight, by_kernel=True)
    torch.testing.assert_close(values, expected_values, **CLOSE)
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, **CLOSE, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("with_padding", [False, True])
def test_torchs_kernel_takes_many_keys_in_float32(with_padding: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SHORT_KEYS", TOKENS - 1)
    of = shape("global")
    layer, sight = made(of), attention("global", of, with_padding)
    expected_values, expected = gradients(layer, sight, by_kernel=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_probabilities", None)
        values, found = gradients(layer, sight, by_kernel=True)
    torch.testing.assert_close(values, expected_values, **CLOSE)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, **CLOSE, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("tokens", [1, 3, 4])
def test_texts_may_be_as_short_as_a_token(tokens: int) -> None:
    of = shape("blocks")
    layer, hidden = made(of), torch.randn(BATCH, tokens, WIDTH, generator=torch.Generator().manual_seed(4))
    sight = Attention.local(torch.zeros(BATCH, tokens, dtype=torch.long), of, pre_norm.pre_norm_of(of), None)
    with torch.no_grad():
        expected = layer.eval()(hidden, sight)
    torch.testing.assert_close(layer.train()(hidden, sight).detach(), expected, **CLOSE)


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_biases_and_the_first_norm_may_be_absent(bias: bool, is_first: bool) -> None:
    of = shape("blocks", bias=bias)
    layer, sight = made(of, is_first), attention("blocks", of, with_padding=True)
    expected_values, expected = gradients(layer, sight, by_kernel=False)
    values, found = gradients(layer, sight, by_kernel=True)
    torch.testing.assert_close(values, expected_values, **CLOSE)
    assert len(found) == 1 + (6 + 6 * bias) - (1 + bias) * is_first
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, **CLOSE, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.usefixtures("probabilities")
@pytest.mark.parametrize("local", ["global", "blocks"])
def test_gradients_under_dropout_are_those_of_finite_differences(local: str) -> None:
    of = shape(local, dropout=0.3)
    layer = made(of).double()
    sight = attention(local, of, with_padding=True)
    sight = sight._replace(cos_TK=sight.cos_TK.double(), sin_TK=sight.sin_TK.double())

    def dropped(hidden: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(6)
        found: Tensor = layer(hidden, sight)
        return found

    inputs = (states().detach().double().requires_grad_(), *layer.parameters())
    assert torch.autograd.gradcheck(dropped, inputs, fast_mode=True)


@pytest.mark.usefixtures("probabilities")
@pytest.mark.parametrize("local", REACHES)
def test_bfloat16_is_no_further_from_float32_than_autocast_is(local: str) -> None:
    of = shape(local, width=64)
    layer, sight = made(of), attention(local, of, with_padding=False)
    _, exact = gradients(layer, sight, by_kernel=False)
    distances = {}
    for by_kernel in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            _, found = gradients(layer, sight, by_kernel=by_kernel)
        distances[by_kernel] = {name: float((found[name] - exact[name]).norm() / exact[name].norm()) for name in exact}
    for name, distance in distances[True].items():
        assert distance < 1.5 * distances[False][name] + 1e-3, name


def test_frozen_weights_get_no_gradient_and_change_no_other() -> None:
    of = shape("blocks", dropout=0.3)
    layer, sight = made(of), attention("blocks", of, with_padding=False)
    of_layer: Callable[[], dict[str, Tensor]] = lambda: gradients(layer, sight, by_kernel=True)[1]  # noqa: E731
    torch.manual_seed(7)
    whole = of_layer()
    layer.requires_grad_(False)
    torch.manual_seed(7)
    found = of_layer()
    assert set(found) == {"hidden"}
    torch.testing.assert_close(found["hidden"], whole["hidden"])
    assert all(parameter.grad is None for parameter in layer.parameters())

"""What tells families of encoders apart: where positions begin, segments, LayerNorm's epsilon, activation."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lingraft.config.encoder import EncoderShape, Family
from lingraft.model.encoder import Encoder, MlmHead, Vocabulary

VOCABULARY = 61
CLOSE = {"rtol": 0.0, "atol": 1e-6}


def shape_of(**family: Any) -> EncoderShape:
    return EncoderShape(
        width=24, layers=2, attention_heads=2, mlm_heads=(1, 2), block_tokens=16, family=Family(**family)
    )


def drawn(shape: EncoderShape, seed: int = 1) -> Encoder:
    """Weights large enough that every one of them shows."""
    made, generator = Encoder(shape, VOCABULARY), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(std=0.2, generator=generator))
    return made.eval()


def like(encoder: Encoder, **family: Any) -> Encoder:
    """The same weights in another family, which must have as many."""
    made = Encoder(shape_of(**family), VOCABULARY)
    made.load_state_dict(encoder.state_dict())
    return made.eval()


def tokens(blocks: int = 3, length: int = 16) -> Tensor:
    return torch.randint(5, VOCABULARY, (blocks, length), generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def hidden(encoder: Encoder, tokens_BT: Tensor, types_BT: Tensor | None = None) -> Tensor:
    """After the last layer."""
    return encoder.hidden_states(tokens_BT, (2,), types_BT=types_BT)[2]


@pytest.mark.parametrize("offset", [0, 2, 5])
def test_positions_begin_behind_the_offset_and_fill_a_block(offset: int) -> None:
    encoder = drawn(shape_of(position_offset=offset))
    assert len(encoder.positions_TD) == 16 + offset
    before = hidden(encoder, tokens())
    with torch.no_grad():
        encoder.positions_TD[:offset] = 100.0
    assert torch.equal(hidden(encoder, tokens()), before)
    for place in (0, 7, 15):
        moved = drawn(shape_of(position_offset=offset))
        with torch.no_grad():
            moved.positions_TD[offset + place] += 5 * torch.randn(24, generator=torch.Generator().manual_seed(place))
        assert not torch.allclose(hidden(moved, tokens())[:, place], before[:, place], atol=0.1)


def test_the_same_rows_at_another_offset_compute_the_same() -> None:
    bert, roberta = drawn(shape_of(position_offset=0)), Encoder(shape_of(position_offset=2), VOCABULARY)
    state = bert.state_dict()
    roberta.load_state_dict(state | {"positions_TD": torch.cat([torch.zeros(2, 24), state["positions_TD"]])})
    assert torch.equal(hidden(roberta.eval(), tokens()), hidden(bert, tokens()))


def test_without_types_all_tokens_are_in_the_first_segment() -> None:
    encoder, tokens_BT = drawn(shape_of(segments=2)), tokens()
    torch.testing.assert_close(
        hidden(encoder, tokens_BT), hidden(encoder, tokens_BT, torch.zeros_like(tokens_BT)), **CLOSE
    )


def test_the_second_segment_is_another_one_where_it_stands() -> None:
    encoder, tokens_BT = drawn(shape_of(segments=2)), tokens()
    types_BT = torch.zeros_like(tokens_BT)
    types_BT[1, 9:] = 1
    before, after = hidden(encoder, tokens_BT), hidden(encoder, tokens_BT, types_BT)
    torch.testing.assert_close(after[[0, 2]], before[[0, 2]], **CLOSE)
    assert not torch.allclose(after[1, 9:], before[1, 9:], atol=0.1)


def test_segments_are_added_to_words_and_positions() -> None:
    encoder, tokens_BT = drawn(shape_of(segments=3)), tokens()
    plain = Encoder(shape_of(), VOCABULARY)
    state = {name: tensor for name, tensor in encoder.state_dict().items() if name != "types_SD"}
    plain.load_state_dict(state | {"positions_TD": encoder.positions_TD + encoder.types_SD[2]})
    third_BT = torch.full_like(tokens_BT, 2)
    torch.testing.assert_close(hidden(encoder, tokens_BT, third_BT), hidden(plain.eval(), tokens_BT), **CLOSE)


def test_segments_belong_to_the_body_and_learn() -> None:
    encoder = drawn(shape_of(segments=2))
    assert encoder.body_tensors()["types_SD"].shape == (2, 24)
    assert "types_SD" not in drawn(shape_of()).state_dict()
    encoder.masked_logits(tokens(), torch.arange(9), (2,))[2].logsumexp(1).sum().backward()
    assert encoder.types_SD.grad is not None
    assert encoder.types_SD.grad[0].any()
    assert not encoder.types_SD.grad[1].any()


ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda hidden_MD: F.gelu(hidden_MD, approximate="tanh"),
    "relu": torch.relu,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@torch.no_grad()
def test_the_head_and_the_layers_have_the_familys_activation(name: str) -> None:
    shape = shape_of(activation=name, head_activation=name)
    head, vocabulary, hidden_MD = MlmHead(shape), Vocabulary(VOCABULARY, 24), torch.randn(5, 24)
    features_MD = F.layer_norm(ACTIVATIONS[name](head.dense(hidden_MD)), (24,))
    torch.testing.assert_close(head(hidden_MD, vocabulary), features_MD @ vocabulary.table_VD.T, **CLOSE)
    layer, hidden_BTD = drawn(shape).layers[0], torch.randn(2, 4, 24)
    seen: list[Tensor] = []
    layer.up.register_forward_hook(lambda _, __, output: seen.append(output))
    layer.down.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    layer(hidden_BTD, None)
    torch.testing.assert_close(seen[1], ACTIVATIONS[name](seen[0]), **CLOSE)


def test_activations_give_models_that_differ() -> None:
    gelu = drawn(shape_of())
    found = {name: hidden(like(gelu, activation=name), tokens()) for name in ACTIVATIONS}
    assert torch.equal(found["gelu"], hidden(gelu, tokens()))
    assert 0 < float((found["gelu"] - found["gelu_tanh"]).abs().max()) < 0.1
    assert float((found["gelu"] - found["relu"]).abs().max()) > 0.1


def test_every_layer_norm_has_the_familys_epsilon() -> None:
    encoder = drawn(shape_of(layer_norm_eps=1e-2))
    norms = [module for module in encoder.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert len(norms) == 1 + 2 * 2 + 2
    assert {norm.eps for norm in norms} == {1e-2}

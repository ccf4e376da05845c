"""An encoder of ModernBERT's family: heads at any depth, mini-models, dropout, recomputing and FLOPs.

That it computes what transformers does is for `tests/huggingface/test_modernbert.py`.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lingraft.config.encoder import EncoderShape, Family
from lingraft.model.encoder import Encoder, fresh_layers, mini_model
from lingraft.model.flops import UpdateShape
from lingraft.model.pre_norm import Attention

VOCABULARY, TOKENS = 61, 40
PRE_NORM = {"local_tokens": 8, "global_every": 2}
SHAPE = EncoderShape(
    width=24,
    layers=4,
    attention_heads=2,
    mlm_heads=(2, 4),
    block_tokens=TOKENS,
    family=Family.model_validate({"separators": 1, "pre_norm": PRE_NORM}),
)


@torch.no_grad()
def drawn(module: nn.Module, seed: int = 1) -> Any:
    """The module with weights large enough that every one of them shows."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.add_(torch.empty_like(parameter).normal_(std=0.2, generator=generator))
    return module.eval()


@pytest.fixture
def primary() -> Encoder:
    return drawn(Encoder(SHAPE, VOCABULARY))


def tokens(blocks: int = 3) -> Tensor:
    return torch.randint(5, VOCABULARY, (blocks, TOKENS), generator=torch.Generator().manual_seed(2))


def logits(encoder: Encoder, depth: int) -> Tensor:
    return encoder.masked_logits(tokens(), torch.arange(50), (depth,))[depth]


def test_each_head_has_a_final_norm_of_its_own(primary: Encoder) -> None:
    before = {depth: logits(primary, depth).detach() for depth in (2, 4)}
    with torch.no_grad():
        primary.final_norms["2"].weight.mul_(-1)
    assert not torch.allclose(logits(primary, 2), before[2], atol=0.1)
    assert torch.equal(logits(primary, 4), before[4])


def test_a_mini_model_computes_what_the_primarys_head_there_does_and_shares_all(primary: Encoder) -> None:
    for depth in (2, 4):
        mini = mini_model(primary, depth).eval()
        assert torch.equal(logits(mini, depth), logits(primary, depth))
        own, whole = ({parameter.data_ptr() for parameter in each.parameters()} for each in (mini, primary))
        assert own <= whole


@torch.no_grad()
def test_fresh_layers_have_the_attention_of_their_place_and_the_primarys_last_norm_and_head(primary: Encoder) -> None:
    fresh = drawn(fresh_layers(SHAPE, 2), seed=5)
    mini = mini_model(primary, 1, fresh).eval()
    whole = Encoder(SHAPE.cut(3, (3,)), VOCABULARY).eval()
    whole.vocabulary, whole.input_norm, whole.heads["3"] = primary.vocabulary, primary.input_norm, primary.heads["4"]
    whole.layers, whole.final_norms["3"] = nn.ModuleList([primary.layers[0], *fresh]), primary.final_norms["4"]
    assert torch.equal(logits(mini, 3), logits(whole, 3))
    local = [layer.number_of_keys for layer in spied(mini)]
    assert local == [TOKENS, 3 * 4, TOKENS]


class Spied(nn.Module):
    """A layer that counts the keys that its queries meet."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.number_of_keys = layer, 0

    def forward(self, hidden_BTD: Tensor, attention: Any) -> Tensor:
        self.number_of_keys = 3 * attention.block if attention.block else hidden_BTD.shape[1]
        return self.layer(hidden_BTD, attention)


def spied(encoder: Encoder) -> list[Spied]:
    encoder.layers = nn.ModuleList(map(Spied, encoder.layers))
    logits(encoder, encoder.shape.layers)
    return [*encoder.layers]


@torch.no_grad()
def test_what_is_not_visible_changes_nothing(primary: Encoder) -> None:
    visible_BT = torch.arange(TOKENS) < torch.tensor([[TOKENS], [11], [1]])
    one, other = (primary.hidden_states(ids, (4,), visible_BT)[4] for ids in (tokens(), tokens().where(visible_BT, 50)))
    assert torch.equal(one[visible_BT], other[visible_BT])
    assert one.isfinite().all()


@torch.no_grad()
def test_local_attention_reaches_half_its_window_to_each_side() -> None:
    shape = SHAPE.model_copy(update={"layers": 2, "mlm_heads": (2,)})
    encoder, near = drawn(Encoder(shape, VOCABULARY)), torch.arange(TOKENS).sub(20).abs() <= 4
    one_TD = encoder.layers[1](torch.zeros(1, TOKENS, 24), local_attention(encoder))[0]
    changed = torch.zeros(1, TOKENS, 24)
    changed[0, 20] = torch.randn(24)
    other_TD = encoder.layers[1](changed, local_attention(encoder))[0]
    assert torch.equal((one_TD != other_TD).any(1), near)


def local_attention(encoder: Encoder) -> Any:
    return encoder._attentions(tokens(1), None)[1]


@pytest.mark.parametrize("length", [12, 31])
def test_padding_beyond_the_reach_of_any_token_sees_itself(length: int) -> None:
    visible_BT = torch.arange(length)[None] < 1
    attention = Attention.local(tokens(1)[:, :length], SHAPE, SHAPE.family.pre_norm, visible_BT)
    query, key, value = torch.randn(3, 1, 2, length, 12).unbind(0)
    mixed = attention.attend(query, key, value, 0.0)
    torch.testing.assert_close(mixed[:, :, 5:], value[:, :, 5:])
    assert not torch.allclose(mixed[:, :, 1:5], value[:, :, 1:5])


@pytest.mark.parametrize("global_every", [1, 3])
def test_flops_of_pretraining_are_those_that_torch_counts(global_every: int) -> None:
    pre_norm = SHAPE.family.pre_norm.model_copy(update={"global_every": global_every, "local_tokens": 32})
    family = SHAPE.family.model_copy(update={"pre_norm": pre_norm})
    changes = {"width": 64, "layers": 5, "mlm_heads": (5,), "block_tokens": 128, "feedforward": 96, "family": family}
    shape = SHAPE.model_copy(update=changes)
    encoder, places_M = Encoder(shape, VOCABULARY), torch.arange(0, 256, 8)
    tokens_BT = torch.randint(5, VOCABULARY, (2, 128))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        encoder.masked_logits(tokens_BT, places_M, (5,))[5].logsumexp(-1).sum().backward()
    work = UpdateShape.of(shape, layers=5, vocabulary=VOCABULARY, batch_blocks=2, mask_rate=1 / 8)
    assert counter.get_total_flops() == pytest.approx(work.pretraining_flops(), rel=0.02)

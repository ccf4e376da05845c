"""Mini-models cut from a primary: everything is shared, and nothing that they are given reaches the primary."""

import pytest
import torch
from torch import Tensor, nn

from lingraft.config.encoder import EncoderShape
from lingraft.errors import DepthError
from lingraft.model.encoder import Encoder, Vocabulary, fresh_layers, mini_model
from lingraft.model.swap import swap

VOCABULARY = 61
SHAPE = EncoderShape(width=24, layers=4, attention_heads=2, mlm_heads=(2, 4), block_tokens=16)


def drawn(shape: EncoderShape = SHAPE, seed: int = 1) -> Encoder:
    made = Encoder(shape, VOCABULARY)
    redraw(made, seed)
    return made.eval()


@torch.no_grad()
def redraw(module: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.add_(torch.empty_like(parameter).normal_(std=0.2, generator=generator))


@pytest.fixture
def primary() -> Encoder:
    return drawn()


@pytest.fixture
def fresh(primary: Encoder) -> nn.ModuleList:
    """Two layers as step 1b might have left them."""
    made = fresh_layers(primary.shape, 2)
    redraw(made, seed=5)
    return made.eval()


def tokens(blocks: int = 3) -> Tensor:
    return torch.randint(5, VOCABULARY, (blocks, 16), generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def logits(encoder: Encoder, depth: int, places: int = 20) -> Tensor:
    return encoder.masked_logits(tokens(), torch.arange(places), (depth,))[depth]


def addresses(module: nn.Module) -> set[int]:
    return {parameter.data_ptr() for parameter in module.parameters()}


@pytest.mark.parametrize("depth", [2, 4])
def test_a_mini_model_computes_what_the_primarys_head_there_does(primary: Encoder, depth: int) -> None:
    mini = mini_model(primary, depth)
    assert (mini.shape.layers, mini.shape.mlm_heads, len(mini.layers)) == (depth, (depth,), depth)
    assert torch.equal(logits(mini.eval(), depth), logits(primary, depth))


def test_nothing_is_copied(primary: Encoder, fresh: nn.ModuleList) -> None:
    joint, post = mini_model(primary, 2), mini_model(primary, 2, fresh)
    assert addresses(joint) < addresses(primary)
    assert addresses(post) - addresses(primary) == addresses(fresh)
    for mini in (joint, post):
        assert mini.vocabulary is primary.vocabulary
        assert mini.positions_TD is primary.positions_TD
        assert mini.input_norm is primary.input_norm
        assert all(own is theirs for own, theirs in zip(mini.layers[:2], primary.layers[:2], strict=True))
    assert joint.heads["2"] is primary.heads["2"]


def test_what_is_swapped_into_a_mini_model_stays_out_of_the_primary(primary: Encoder) -> None:
    before, own = logits(primary, 4), primary.vocabulary
    mini, theirs = mini_model(primary, 2), Vocabulary(33, 24)
    swap(mini, theirs)
    assert primary.vocabulary is own
    assert torch.equal(logits(primary, 4), before)
    swap(primary, theirs)
    assert mini.vocabulary is theirs


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_fresh_layers_stand_between_any_bottom_and_the_primarys_last_head(
    primary: Encoder, fresh: nn.ModuleList, depth: int
) -> None:
    mini = mini_model(primary, depth, fresh)
    top = depth + 2
    assert (mini.shape.layers, mini.depths) == (top, (top,))
    assert mini.heads[str(top)] is primary.heads["4"]
    with torch.no_grad():
        hidden_BTD = primary.hidden_states(tokens(), (depth,))[depth]
        for layer in fresh:
            hidden_BTD = layer(hidden_BTD, None)
        expected_MV = primary.heads["4"](hidden_BTD.flatten(0, 1)[:20], primary.vocabulary)
    assert torch.equal(logits(mini.eval(), top), expected_MV)
    assert not torch.allclose(expected_MV, logits(primary, 4), atol=0.1)


def test_a_mini_model_of_fresh_layers_needs_no_head_of_its_own() -> None:
    lone = drawn(SHAPE.cut(4, (4,)))
    with pytest.raises(DepthError, match=r"\[4\]"):
        mini_model(lone, 2)
    assert mini_model(lone, 2, fresh_layers(lone.shape, 1)).depths == (3,)


def test_fresh_layers_begin_as_pretraining_does_and_follow_the_global_seed() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        one = fresh_layers(SHAPE, 2)
        torch.manual_seed(3)
        same = fresh_layers(SHAPE, 2)
    assert len(one) == 2
    for mine, theirs in zip(one.parameters(), same.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert float(one[0].up.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
    assert not one[1].qkv.bias.any()
    assert not torch.equal(one[0].up.weight, one[1].up.weight)

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import RobertaConfig, RobertaForMaskedLM

from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.huggingface.weights import to_checkpoint
from lingraft.model.encoder import Encoder

VOCABULARY, PAD = 97, DEFAULT_SPECIAL_IDS.pad
SHAPE = EncoderShape(width=48, layers=4, attention_heads=3, mlm_heads=(2, 4), block_tokens=40, feedforward=80)
CLOSE = {"rtol": 0.0, "atol": 1e-5}


def some_tokens(blocks: int = 3, length: int = 40, seed: int = 1) -> Tensor:
    return torch.randint(5, VOCABULARY, (blocks, length), generator=torch.Generator().manual_seed(seed))


def some_places(count: int = 25) -> Tensor:
    return torch.randperm(3 * 40, generator=torch.Generator().manual_seed(2))[:count]


def padded() -> tuple[Tensor, Tensor]:
    """Tokens of three lengths, and where they are."""
    tokens_BT = some_tokens()
    tokens_BT[1, 11:], tokens_BT[2, 33:] = PAD, PAD
    return tokens_BT, tokens_BT != PAD


@pytest.fixture
def encoder() -> Encoder:
    """Weights large enough that every one of them shows in the logits."""
    made = Encoder(SHAPE, VOCABULARY)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(std=0.1, generator=generator))
    return made.eval()


@pytest.fixture
def peer(encoder: Encoder) -> RobertaForMaskedLM:
    """Hugging Face's RoBERTa with the same weights and the last of our heads."""
    config = RobertaConfig(
        vocab_size=VOCABULARY,
        hidden_size=SHAPE.width,
        num_hidden_layers=SHAPE.layers,
        num_attention_heads=SHAPE.attention_heads,
        intermediate_size=SHAPE.feedforward,
        max_position_embeddings=SHAPE.block_tokens + SHAPE.family.position_offset,
        pad_token_id=PAD,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )
    made = RobertaForMaskedLM(config).eval()
    ours = to_checkpoint(encoder.state_dict(), SHAPE, "roberta", head=SHAPE.layers)
    ours["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, SHAPE.width)
    made.load_state_dict(ours, strict=False)
    return made


@torch.no_grad()
@pytest.mark.parametrize("with_padding", [False, True])
def test_hidden_states_are_those_of_transformers_at_every_depth(
    encoder: Encoder, peer: RobertaForMaskedLM, with_padding: bool
) -> None:
    tokens_BT, visible_BT = padded() if with_padding else (some_tokens(), torch.ones(3, 40, dtype=torch.bool))
    expected = peer(tokens_BT, attention_mask=visible_BT.long(), output_hidden_states=True).hidden_states
    found = encoder.hidden_states(tokens_BT, (1, 3, 4), visible_BT if with_padding else None)
    assert sorted(found) == [1, 3, 4]
    for depth, hidden_BTD in found.items():
        torch.testing.assert_close(hidden_BTD[visible_BT], expected[depth][visible_BT], **CLOSE)


def test_gradients_are_those_of_transformers(encoder: Encoder, peer: RobertaForMaskedLM) -> None:
    tokens_BT, places_M = some_tokens(), some_places()
    targets_M = some_tokens(1, len(places_M), seed=5)[0]
    F.cross_entropy(encoder.masked_logits(tokens_BT, places_M, (4,))[4], targets_M).backward()
    F.cross_entropy(peer(tokens_BT).logits.flatten(0, 1)[places_M], targets_M).backward()
    table = peer.roberta.embeddings.word_embeddings.weight
    torch.testing.assert_close(encoder.vocabulary.table_VD.grad[PAD + 1 :], table.grad[PAD + 1 :], **CLOSE)
    their_query = peer.roberta.encoder.layer[0].attention.self.query.weight.grad
    torch.testing.assert_close(encoder.layers[0].qkv.weight.grad[: SHAPE.width], their_query, **CLOSE)


@pytest.mark.parametrize("with_padding", [False, True])
def test_training_computes_what_inference_does(encoder: Encoder, with_padding: bool) -> None:
    tokens_BT, visible_BT = padded() if with_padding else (some_tokens(), None)
    trained = encoder.masked_logits(tokens_BT, some_places(), (2, 4), visible_BT)
    with torch.no_grad():
        inferred = encoder.masked_logits(tokens_BT, some_places(), (2, 4), visible_BT)
    for depth in (2, 4):
        torch.testing.assert_close(trained[depth], inferred[depth], **CLOSE)


def test_a_head_computes_nothing_above_itself(encoder: Encoder) -> None:
    ran = []
    for number, layer in enumerate(encoder.layers, start=1):
        layer.register_forward_hook(lambda *_, number=number: ran.append(number))
    encoder.masked_logits(some_tokens(), some_places(), (2,))[2].sum().backward()
    assert ran == [1, 2]
    assert all(parameter.grad is None for layer in encoder.layers[2:] for parameter in layer.parameters())
    assert all(parameter.grad is None for parameter in encoder.heads["4"].parameters())
    assert all(parameter.grad is not None for parameter in encoder.layers[:2].parameters())


def test_dropout_works_in_training_only(encoder: Encoder) -> None:
    dropping = Encoder(SHAPE.model_copy(update={"dropout": 0.3}), VOCABULARY)
    dropping.load_state_dict(encoder.state_dict())
    tokens_BT = some_tokens()
    once, twice = (dropping.train().hidden_states(tokens_BT, (4,))[4] for _ in range(2))
    assert not torch.allclose(once, twice, atol=1e-2)
    with torch.no_grad():
        assert torch.equal(dropping.eval().hidden_states(tokens_BT, (4,))[4], encoder.hidden_states(tokens_BT, (4,))[4])


def test_the_body_is_everything_but_the_vocabulary(encoder: Encoder) -> None:
    names = set(encoder.body_tensors())
    assert set(encoder.state_dict()) - names == {"vocabulary.table_VD", "vocabulary.bias_V"}
    sizes = sum(tensor.numel() for tensor in encoder.body_tensors().values())
    own = VOCABULARY * (SHAPE.width + 1)
    assert sizes + own == sum(parameter.numel() for parameter in encoder.parameters())


def test_weights_begin_as_berts_do() -> None:
    fresh = Encoder(SHAPE.model_copy(update={"width": 192, "feedforward": None}), 500)
    assert fresh.layers[0].up.weight.shape == (4 * 192, 192)
    for name, parameter in fresh.state_dict().items():
        if "norm" in name:
            assert set(parameter.unique().tolist()) == {1.0 if name.endswith("weight") else 0.0}
        elif name.endswith(("bias", "bias_V")):
            assert not parameter.any()
        else:
            assert float(parameter.std()) == pytest.approx(0.02, rel=0.05)


@torch.no_grad()
def test_a_heads_logits_do_not_depend_on_which_others_are_asked_for(encoder: Encoder) -> None:
    alone = encoder.masked_logits(some_tokens(), some_places(), (2,))[2]
    together = encoder.masked_logits(some_tokens(), some_places(), (4, 2))
    assert torch.equal(together[2], alone)
    assert not torch.equal(together[4], alone)

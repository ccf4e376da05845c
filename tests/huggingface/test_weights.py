"""Our encoder computes what transformers computes, whatever the family and its settings; and names map both ways."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, CamembertConfig, RobertaConfig, XLMRobertaConfig

from lingraft.huggingface.config import parse_config
from lingraft.huggingface.weights import CheckpointError, tensor_names, to_checkpoint
from tests.huggingface.checkpoints import logits_of
from tests.huggingface.parity import converted, encoder_of, made, our_logits

CLOSE = 1e-5
ODD: dict[str, dict[str, Any]] = {
    "plain": {},
    "one segment": {"type_vocab_size": 1},
    "three segments": {"type_vocab_size": 3},
    "pad 5": {"pad_token_id": 5},
    "untied bias": {"tie_word_embeddings": False},
    "eps 0.01": {"layer_norm_eps": 0.01},
    "one head, wide feed-forward": {"num_attention_heads": 1, "intermediate_size": 200},
}


def tokens(model: Any, rows: int = 3, length: int = 20) -> Tensor:
    """Token ids (rows, length) without the pad id, from which RoBERTa of transformers counts its positions."""
    vocabulary, pad = model.config.vocab_size, model.config.pad_token_id
    return torch.randint(pad + 1, vocabulary, (rows, length), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("model_type", "odd"),
    [
        *itertools.product(("roberta", "bert"), ODD),
        ("xlm-roberta", "plain"),
        ("camembert", "plain"),
        # They differ from RoBERTa in their names for transformers alone.
        *(
            pytest.param(*each, marks=pytest.mark.nightly)
            for each in itertools.product(("xlm-roberta", "camembert"), ODD)
            if each[1] != "plain"
        ),
    ],
)
def test_logits_are_those_of_transformers(model_type: str, odd: str) -> None:
    model, tensors, config = made(model_type, **ODD[odd])
    ids = tokens(model)
    theirs, ours = logits_of(model, ids), our_logits(encoder_of(tensors, config), ids)
    assert theirs.std() > 0.5
    assert (theirs - ours).abs().max() < CLOSE


@pytest.mark.parametrize(
    ("model_type", "activation"), [("roberta", "gelu_new"), ("roberta", "gelu_pytorch_tanh"), ("bert", "relu")]
)
def test_logits_are_those_of_transformers_with_another_activation(model_type: str, activation: str) -> None:
    model, tensors, config = made(model_type, hidden_act=activation)
    ids = tokens(model)
    theirs = logits_of(model, ids)
    assert (theirs - our_logits(encoder_of(tensors, config), ids)).abs().max() < CLOSE
    assert (theirs - our_logits(encoder_of(tensors, config | {"hidden_act": "gelu"}), ids)).abs().max() > 5 * CLOSE


@pytest.mark.parametrize("model_type", ["roberta", "bert"])
def test_logits_at_visible_places_of_padded_text_are_those_of_transformers(model_type: str) -> None:
    model, tensors, config = made(model_type)
    ids, visible = tokens(model), torch.ones(3, 20, dtype=torch.bool)
    visible[1, 12:] = visible[2, 1:] = False
    ids[~visible] = model.config.pad_token_id
    theirs, ours = logits_of(model, ids, visible), our_logits(encoder_of(tensors, config), ids, visible)
    assert (theirs - ours)[visible].abs().max() < CLOSE


def test_the_longest_text_of_transformers_is_ours() -> None:
    for model_type in ("roberta", "bert"):
        model, tensors, config = made(model_type)
        length = 40 if model_type == "bert" else 38
        assert parse_config(config).shape.block_tokens == length
        ids = tokens(model, rows=1, length=length)
        assert (logits_of(model, ids) - our_logits(encoder_of(tensors, config), ids)).abs().max() < CLOSE


def test_segments_of_a_pair_are_those_of_transformers() -> None:
    model, tensors, config = made("bert")
    ids, types = tokens(model), torch.zeros(3, 20, dtype=torch.long)
    types[:, 9:] = 1
    with torch.no_grad():
        theirs = model.bert(input_ids=ids, token_type_ids=types).last_hidden_state
        ours = encoder_of(tensors, config).hidden_states(ids, (3,), types_BT=types)[3]
        plain = encoder_of(tensors, config).hidden_states(ids, (3,))[3]
    assert (theirs - ours).abs().max() < CLOSE
    assert (ours - plain).abs().max() > 0.1


def test_a_body_maps_without_heads_and_output_bias() -> None:
    _, tensors, config = made("roberta")
    shape = parse_config(config).shape
    back = to_checkpoint(converted(tensors, config).tensors, shape, "roberta")
    assert back.keys() == {name for name in tensors if name.startswith("roberta.")}
    assert "heads.3.dense.weight" not in tensor_names(shape, "roberta")


@pytest.mark.parametrize("model_type", ["roberta", "bert"])
def test_the_bias_that_counts_is_the_one_transformers_computes_with(model_type: str) -> None:
    model, tensors, config = made(model_type, tie_word_embeddings=False)
    output = "lm_head" if model_type == "roberta" else "cls.predictions"
    assert not torch.equal(tensors[f"{output}.bias"], tensors[f"{output}.decoder.bias"])
    found = converted(tensors, config)
    assert torch.equal(found.tensors["vocabulary.bias_V"], model.get_output_embeddings().bias)
    assert f"{output}.bias is left out" in " ".join(found.notes)
    alone = {name: tensor for name, tensor in tensors.items() if name != f"{output}.decoder.bias"}
    assert torch.equal(converted(alone, config).tensors["vocabulary.bias_V"], tensors[f"{output}.bias"])


def test_a_tied_projection_may_go_by_either_name() -> None:
    _, tensors, config = made("roberta")
    table = tensors.pop("roberta.embeddings.word_embeddings.weight")
    assert torch.equal(converted(tensors, config).tensors["vocabulary.table_VD"], table)
    del tensors["lm_head.decoder.weight"]
    with pytest.raises(CheckpointError, match=r"lacks roberta\.embeddings\.word_embeddings\.weight\. It must be"):
        converted(tensors, config)


def test_known_surplus_and_old_names_are_taken_and_said() -> None:
    _, tensors, config = made("bert")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    assert any("gamma" in name for name in old)
    old |= {
        "bert.embeddings.position_ids": torch.arange(40)[None],
        "bert.pooler.dense.weight": torch.ones(32, 32),
        "bert.pooler.dense.bias": torch.ones(32),
        "cls.seq_relationship.weight": torch.ones(2, 32),
        "cls.seq_relationship.bias": torch.ones(2),
    }
    found, plain = converted(old, config), converted(tensors, config)
    assert plain.notes == []
    assert [note.partition(" ")[0] for note in found.notes] == sorted(
        old.keys() - {*tensors} - {n for n in old if "LayerNorm" in n}
    )
    assert all(torch.equal(tensor, found.tensors[name]) for name, tensor in plain.tensors.items())


def test_half_precision_becomes_float32_without_a_changed_value() -> None:
    half = torch.bfloat16
    _, tensors, config = made("roberta")
    halves = {name: tensor.to(half) for name, tensor in tensors.items()}
    found = converted(halves, config)
    assert {tensor.dtype for tensor in found.tensors.values()} == {torch.float32}
    assert torch.equal(
        found.tensors["vocabulary.table_VD"].to(half), halves["roberta.embeddings.word_embeddings.weight"]
    )
    assert f"weights of {half} became float32" in found.notes[-1]


def without(name: str) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        del tensors[name]

    return change


def with_(name: str, tensor: Tensor) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[name] = tensor

    return change


QUERY = "roberta.encoder.layer.1.attention.self.query.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without(QUERY), rf"lacks {QUERY}\. .*ForMaskedLM"),
        (without("lm_head.dense.bias"), r"lacks lm_head\.dense\.bias"),
        (with_("classifier.weight", torch.ones(2, 32)), r"holds classifier\.weight, for which .* no place"),
        (with_("roberta.encoder.layer.3.output.dense.bias", torch.ones(32)), r"holds roberta\.encoder\.layer\.3"),
        (with_(QUERY, torch.ones(32, 16)), rf"{QUERY} is \(32, 16\), not \(32, 32\)"),
        (with_("lm_head.bias", torch.ones(59)), r"is \(59,\), not \(60,\)"),
        (with_(QUERY, torch.ones(32, 32, dtype=torch.int8)), rf"{QUERY} \(torch\.int8\).*not quantised"),
        (with_(QUERY, torch.full((32, 32), torch.nan)), rf"not finite in {QUERY}"),
        (with_("lm_head.decoder.weight", torch.ones(60, 32)), r"differs from .*ties the two \(paper section 2\)"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(change: Callable[[dict[str, Tensor]], None], message: str) -> None:
    _, tensors, config = made("roberta")
    tensors.pop("lm_head.decoder.bias")
    converted(tensors, config)
    change(tensors)
    with pytest.raises(CheckpointError, match=message):
        converted(tensors, config)


def test_an_untied_checkpoint_without_its_projection_is_refused() -> None:
    _, tensors, config = made("roberta", tie_word_embeddings=False)
    del tensors["lm_head.decoder.weight"]
    with pytest.raises(CheckpointError, match=r"lacks lm_head\.decoder\.weight.*tie_word_embeddings = false"):
        converted(tensors, config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "distilbert"}, "model_type is 'distilbert'.*roberta, xlm-roberta, camembert, bert"),
        ({"model_type": None}, "model_type is None"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'; only 'absolute'"),
        ({"is_decoder": True}, "is_decoder = True; only False"),
        ({"pruned_heads": {"1": [0]}}, "pruned_heads = "),
        ({"quantization_config": {"bits": 8}}, "quantization_config = "),
        ({"hidden_act": "silu"}, "hidden_act = 'silu'; our encoder has gelu"),
        ({"num_attention_heads": 5}, "width 32 is not divisible by attention_heads 5"),
        ({"num_hidden_layers": 0}, "layers: Input should be greater than 0"),
        ({"hidden_size": "32"}, "hidden_size = '32'"),
        ({"type_vocab_size": 0}, "type_vocab_size = 0"),
        ({"pad_token_id": None}, "pad_token_id = None"),
        ({"max_position_embeddings": 9}, r"block_tokens: .*greater than or equal to 8"),
    ],
)
def test_configurations_that_compute_something_else_are_refused(change: dict[str, Any], message: str) -> None:
    config = made("roberta")[2]
    parse_config(config)
    with pytest.raises(CheckpointError, match=message):
        parse_config(config | change)


def test_unequal_dropouts_are_said_and_the_hidden_one_is_kept() -> None:
    config = made("bert")[2]
    read = parse_config(config | {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.1})
    assert read.shape.dropout == 0.2
    assert read.notes == ["dropout 0.2 is kept for all of the encoder; attention_probs_dropout_prob 0.1 is not"]
    assert parse_config(config).notes == []


@pytest.mark.parametrize("theirs", [RobertaConfig, XLMRobertaConfig, CamembertConfig, BertConfig])
def test_what_a_configuration_leaves_out_is_what_transformers_takes(theirs: Any) -> None:
    assert parse_config({"model_type": theirs.model_type}) == parse_config(theirs().to_dict())

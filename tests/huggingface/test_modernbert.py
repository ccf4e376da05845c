"""ModernBERT's checkpoints compute the same as our encoder, whatever their settings, and are imported with all else."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lingraft.huggingface.config import parse_config
from lingraft.huggingface.importing import import_hf
from lingraft.huggingface.tokenizer import import_tokenizer
from lingraft.huggingface.weights import CheckpointError, to_checkpoint
from lingraft.model.initialisation.initial_rows import shared_pieces
from lingraft.model.loading import load_primary
from tests.huggingface.checkpoints import LINES, MORE_LINES, logits_of, make_checkpoint, make_tokenizer
from tests.huggingface.parity import encoder_of, made, our_logits
from tests.huggingface.scripts import trained

CLOSE = 1e-5
ODD: dict[str, dict[str, Any]] = {
    "plain": {},
    "all biases": {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "classifier_bias": True},
    "no output bias": {"decoder_bias": False},
    "every second layer global": {"global_attn_every_n_layers": 2},
    "all layers global": {"global_attn_every_n_layers": 1},
    "one global layer": {"global_attn_every_n_layers": 9},
    "other bases": {"global_rope_theta": 100.0, "local_rope_theta": 7.5},
    "odd window": {"local_attention": 7},
    "wide window": {"local_attention": 64},
    "eps 0.01": {"norm_eps": 0.01},
    "other activations": {"hidden_activation": "relu", "classifier_activation": "gelu_pytorch_tanh"},
    "one head": {"num_attention_heads": 1, "intermediate_size": 100},
    "untied names": {"tie_word_embeddings": False},
}
OLD_KEYS = {"global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"}


def tokens(length: int, rows: int = 3) -> Tensor:
    return torch.randint(2, 60, (rows, length), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("odd", ODD)
def test_logits_are_those_of_transformers(odd: str) -> None:
    model, tensors, config = made("modernbert", **ODD[odd])
    encoder, ids = encoder_of(tensors, config), tokens(30)
    theirs = logits_of(model, ids)
    assert theirs.std() > 0.5
    assert (theirs - our_logits(encoder, ids)).abs().max() < CLOSE


@pytest.mark.parametrize("length", [2, 8, 12, 13, 16, 31, 40])
def test_logits_of_padded_text_of_any_length_are_those_of_transformers(length: int) -> None:
    model, tensors, config = made("modernbert")
    ids, visible = tokens(length), torch.ones(3, length, dtype=torch.bool)
    visible[1, length // 3 + 1 :] = visible[2, 1:] = False  # further from a token than attention reaches
    ids[~visible] = model.config.pad_token_id
    ours = our_logits(encoder_of(tensors, config), ids, visible)
    assert ours.isfinite().all()
    assert (logits_of(model, ids, visible) - ours)[visible].abs().max() < CLOSE


def test_gradients_are_those_of_transformers() -> None:
    model, tensors, config = made("modernbert")
    encoder, ids = encoder_of(tensors, config), tokens(30)
    encoder.masked_logits(ids, torch.arange(90), (5,))[5].logsumexp(-1).sum().backward()
    model(input_ids=ids).logits.logsumexp(-1).sum().backward()
    theirs, ours = model.model.layers[1].attn.Wqkv.weight.grad, encoder.layers[1].qkv.weight.grad
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        encoder.vocabulary.table_VD.grad[2:], model.get_input_embeddings().weight.grad[2:], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("odd", ["every second layer global", "other bases", "all layers global"])
def test_keys_of_older_configurations_say_the_same(odd: str) -> None:
    config = made("modernbert", **ODD[odd])[2]
    old = {key: value for key, value in config.items() if key not in ("layer_types", "rope_parameters")}
    old |= {"global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0, "global_attn_every_n_layers": 3}
    old |= {key: value for key, value in ODD[odd].items() if key in OLD_KEYS}
    old["position_embedding_type"] = "sans_pos"
    new = {key: value for key, value in config.items() if key not in OLD_KEYS}
    assert parse_config(old).shape == parse_config(new).shape != parse_config(made("modernbert")[2]).shape


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 3}, r"layer_types = .*every so many"),
        ({"layer_types": ["sliding_attention"] * 5}, r"layer_types = "),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2.0}}}, r"scales rotary .*yarn"),
        ({"local_attention": 1}, r"local_tokens: .*greater than or equal to 2"),
        ({"hidden_activation": "silu"}, r"hidden_activation = 'silu'; our encoder has gelu"),
        ({"norm_bias": 1}, r"norm_bias = 1"),
        ({"classifier_pooling": "max"}, r"classifier_pooling = 'max'; our encoder has cls, mean"),
        ({"classifier_activation": "silu"}, r"classifier_activation = 'silu'"),
        ({"layer_types": ["full_attention"] * 3}, r"3 layer_types, but num_hidden_layers is 5"),
        ({"layer_types": 5}, r"layer_types = 5, which is no list"),
        ({"layer_types": None, "global_attn_every_n_layers": True}, r"global_attn_every_n_layers = True, which is no"),
        ({"layer_types": None, "global_attn_every_n_layers": 0}, r"^config.json .*\n  .*global_every: "),
        ({"rope_parameters": [1]}, r"rope_parameters = \[1\], which is no dict"),
        ({"rope_parameters": {"full_attention": "x"}}, r"rope_parameters.full_attention = 'x', which is no dict"),
        ({"norm_eps": 0.0}, r"layer_norm_eps: "),
        ({"mlp_dropout": 1.0}, r"\n  dropout: "),
        ({"num_attention_heads": 7}, r"is not divisible by attention_heads 7\.$"),
    ],
)
def test_what_our_encoder_does_not_compute_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse_config(made("modernbert")[2] | changes)


def test_a_dropout_that_differs_is_said() -> None:
    read = parse_config(made("modernbert")[2] | {"mlp_dropout": 0.1, "embedding_dropout": 0.1})
    assert read.shape.dropout == 0.1
    assert read.notes == ["dropout 0.1 is kept for all of the encoder; attention_dropout 0.0 is not"]


@pytest.mark.parametrize("odd", ["plain", "all biases"])
def test_names_map_back(odd: str) -> None:
    _, tensors, config = made("modernbert", **ODD[odd])
    encoder = encoder_of(tensors, config)
    back = to_checkpoint(encoder.state_dict(), encoder.shape, "modernbert", head=5)
    assert back.keys() == tensors.keys() - {"decoder.weight"}
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in back.items())
    body = to_checkpoint(encoder.state_dict(), encoder.shape, "modernbert")
    assert body.keys() == {name for name in tensors if name.startswith("model.")}


@pytest.mark.parametrize("pieces", ["modernbert", "gemma"])
def test_pieces_are_shared_with_a_tokenizer_of_ours_in_every_script(pieces: str, tmp_path: Path) -> None:
    make_tokenizer(pieces).save_pretrained(tmp_path)
    (tmp_path / "kept").mkdir()
    source = import_tokenizer(tmp_path, "en", tmp_path / "kept").tokenizer
    target = trained(MORE_LINES * 20, tmp_path / "xx", 140, "xx")
    mine, theirs = target.surfaces(), source.surfaces()
    shared = shared_pieces(source, target)
    assert all(mine[index] == theirs[found] for index, found in shared.items())
    texts = {mine[index].text for index in shared}
    assert {"ı", "ş", "ç", "ς", "海"} <= texts


@pytest.mark.parametrize("pieces", ["modernbert", "gemma"])
def test_a_checkpoint_in_a_folder_becomes_a_primary(pieces: str, tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "modernbert", pieces=pieces)
    import_hf(str(checkpoint.folder), tmp_path / "primary", "en")
    primary = load_primary(tmp_path / "primary")
    batch = checkpoint.tokenizer([line[:24] for line in LINES], padding=True, return_tensors="pt")
    tokens_BT, visible_BT = batch["input_ids"], batch["attention_mask"].bool()
    assert primary.tokenizer.encode_all(LINES) == checkpoint.tokenizer(LINES, add_special_tokens=False)["input_ids"]
    ours = our_logits(primary.encoder.eval(), tokens_BT, visible_BT)
    theirs = logits_of(checkpoint.model, tokens_BT, visible_BT)
    assert (theirs - ours)[visible_BT].abs().max() < CLOSE

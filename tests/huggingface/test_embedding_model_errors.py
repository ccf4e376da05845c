"""An embedding model that a primary and a task cannot compute is refused, with what was wrong and what to do."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from lingraft.artifacts.manifest import Kind
from lingraft.errors import ArtifactError, TokenizerError
from lingraft.huggingface.importing import import_hf
from lingraft.huggingface.weights import CheckpointError
from tests.huggingface.checkpoints import make_checkpoint

MODULES, BODY, POOLING, DENSE = (
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
)
PACKAGE = "sentence_transformers"
OF_MODEL = "config_sentence_transformers.json"
TYPES = {
    "": f"{PACKAGE}.base.modules.transformer.Transformer",
    "1_Pooling": f"{PACKAGE}.sentence_transformer.modules.pooling.Pooling",
    "2_Dense": f"{PACKAGE}.base.modules.dense.Dense",
}
ENTRIES = [
    {"idx": place, "name": str(place), "path": path, "type": name} for place, (path, name) in enumerate(TYPES.items())
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedding model as sentence-transformers writes it, made without the package."""
    made = make_checkpoint(tmp_path_factory.mktemp("embedding") / "model", "bert")
    folder = made.folder
    made.model.bert.save_pretrained(folder)
    write(folder / MODULES, ENTRIES)
    write(folder / BODY, {"max_seq_length": 32, "do_lower_case": False})
    write(folder / POOLING, {"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": True})
    activation = "torch.nn.modules.activation.Tanh"
    write(folder / DENSE, {"in_features": 32, "out_features": 8, "bias": True, "activation_function": activation})
    save_file(
        {"linear.weight": torch.ones(8, 32), "linear.bias": torch.ones(8)}, folder / "2_Dense" / "model.safetensors"
    )
    write(folder / OF_MODEL, {"prompts": {"query": "query: "}, "default_prompt_name": None})
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """One that a test may damage."""
    return shutil.copytree(whole, tmp_path / "model")


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def module(path: str, name: str) -> dict[str, str]:
    return {"path": path, "type": name}


def refuse(folder: Path, message: str, error: type[Exception] = CheckpointError) -> None:
    with pytest.raises(error, match=message):
        import_hf(str(folder), folder.parent / "primary", "en")
    assert sorted(path.name for path in folder.parent.iterdir()) == ["model"]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (POOLING, {"pooling_mode": "max"}, r"pools by \['max'\]; a task pools by one of mean, cls, lasttoken\. Take"),
        (POOLING, {"pooling_mode": ["mean", "cls"]}, r"pools by \['mean', 'cls'\]; a task pools by one of"),
        (POOLING, {"pooling_mode": [{"a": 1}]}, r"pools by \[\{'a': 1\}\]; a task"),
        (POOLING, {"pooling_mode_attention_tokens": True}, r"pools by \['mean', 'pooling_mode_attention_tokens'\]"),
        (POOLING, {"include_prompt": False}, r"the tokens of the prompt 'query: ' are not pooled.*Take a model"),
        (POOLING, {"embedding_dimension": 48}, "pools vectors of width 48, but the encoder's are 32 wide"),
        (DENSE, {"activation_function": ["own.Swish"]}, r"activation_function = \['own\.Swish'\]; a task has Tanh"),
        (DENSE, {"use_residual": True}, "use_residual = True; it is none that is computed"),
        (DENSE, {"in_features": 16}, "in_features = 16, but what comes in is of width 32"),
        (DENSE, {"out_features": 4}, r"has tensors .*'weight': \(8, 32\).*, not .*'weight': \(4, 32\)"),
        (DENSE, {"out_features": None}, "'out_features': None|no dense layer has"),
        (DENSE, {"module_input_name": "token_embeddings"}, "module_input_name = 'token_embeddings'; only"),
        (BODY, {"max_seq_length": 5}, r"max_seq_length 5; a primary's longest input is a whole number of tokens, 8"),
        (BODY, {"max_seq_length": math.nan}, r"max_seq_length nan; a primary's longest input"),
        (BODY, {"transformer_task": "fill-mask"}, "transformer_task = 'fill-mask'; only 'feature-extraction'"),
        (BODY, {"query_expansion": {"length": 32}}, "query_expansion = .* it is none that is computed"),
        ("tokenizer_config.json", {"truncation_side": "left"}, "truncation_side = 'left'; texts that are too long"),
        ("tokenizer_config.json", {"padding_side": "left"}, "padding_side = 'left', by which a text's positions"),
        ("tokenizer.json", {"padding": {"direction": "Left"}}, "padding_side = 'left', by which a text's positions"),
        ("tokenizer.json", {"truncation": {"direction": "Left"}}, "truncation_side = 'left'; texts that are too long"),
        ("adapter_config.json", {"peft_type": "PROMPT_TUNING"}, r"adapter or prompts of its own weights.*peft"),
        (OF_MODEL, {"prompts": ["query: "]}, "prompts .*, which are no texts by name"),
        (OF_MODEL, {"default_prompt_name": "search"}, r"default_prompt is 'search', but prompts are \['document'"),
        (OF_MODEL, {"truncate_dim": 4, "similarity_fn_name": "dot"}, "truncate_dim = 4 and similarity 'dot'.*'cosine'"),
        (OF_MODEL, {"similarity_fn_name": "dot"}, "similarity 'dot' ranks as the cosine does.*last layer normalises"),
        (OF_MODEL, {"similarity_fn_name": "manhattan"}, "similarity: Input should be 'dot' or 'euclidean'"),
    ],
)
def test_settings_that_are_not_computed_are_refused(
    folder: Path, file: str, change: dict[str, Any], message: str
) -> None:
    path = folder / file
    write(path, (json.loads(path.read_text()) if path.exists() else {}) | change)
    refuse(folder, message)


def test_an_older_pooling_that_is_unknown_is_refused(folder: Path) -> None:
    modes = {"pooling_mode_mean_tokens": False, "pooling_mode_attention_tokens": True}
    write(folder / POOLING, {"word_embedding_dimension": 32, **modes})
    refuse(folder, r"pools by \['pooling_mode_attention_tokens'\]; a task pools by one of mean")


def test_a_length_of_the_tokenizer_s_is_named_as_such(folder: Path) -> None:
    write(folder / BODY, {"max_seq_length": None})
    path = folder / "tokenizer_config.json"
    write(path, json.loads(path.read_text()) | {"model_max_length": math.inf})
    refuse(folder, "model_max_length inf; a primary's longest input")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([*ENTRIES, module("3_LayerNorm", f"{PACKAGE}.models.LayerNorm")], "a module LayerNorm, which no task of ours"),
        ([module("", f"{PACKAGE}.models.CLIPModel")], r"has modules \['CLIPModel'\]; a primary and its task"),
        ([module("", f"{PACKAGE}.models.Router"), *ENTRIES[1:]], r"has modules \['Router', 'Pooling', 'Dense'\]"),
        ([ENTRIES[0], module("1_SpladePooling", f"{PACKAGE}.sparse_encoder.models.SpladePooling")], "SpladePooling"),
        ([module("", "custom_st.Transformer"), *ENTRIES[1:]], r"custom_st\.Transformer, which is code of its own"),
        ([ENTRIES[0], module("../elsewhere", TYPES["1_Pooling"])], r"'\.\./elsewhere', which leads out of the folder"),
        ([ENTRIES[0], {"path": "1_Pooling"}], "without a type and a path"),
        ([], "has no modules"),
        ({}, "holds no JSON array"),
    ],
)
def test_modules_that_are_not_computed_are_refused(folder: Path, entries: Any, message: str) -> None:
    write(folder / MODULES, entries)
    refuse(folder, message)


def pickled(folder: Path) -> None:
    (folder / "2_Dense" / "model.safetensors").rename(folder / "2_Dense" / "pytorch_model.bin")


def not_finite(folder: Path) -> None:
    weights = {"linear.weight": torch.full((8, 32), torch.nan), "linear.bias": torch.ones(8)}
    save_file(weights, folder / "2_Dense" / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "message"),
    [(pickled, r"only pytorch_model\.bin\. A pickle"), (not_finite, "2_Dense has values that are not finite")],
)
def test_weights_of_a_dense_layer_that_cannot_be_read_are_refused(
    damage: Callable[[Path], None], message: str, folder: Path
) -> None:
    damage(folder)
    refuse(folder, message)


def test_a_tokenizer_that_puts_nothing_around_a_text_is_refused(folder: Path) -> None:
    path = folder / "tokenizer.json"
    write(path, json.loads(path.read_text(encoding="utf-8")) | {"post_processor": None})
    settings = folder / "tokenizer_config.json"
    write(settings, json.loads(settings.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"})
    refuse(folder, r"makes the pieces \['a'\] of the text 'a', but texts stand between a begin and an", TokenizerError)


def test_neither_is_written_where_the_task_cannot_be(folder: Path) -> None:
    (folder.parent / "task").mkdir()
    (folder.parent / "task" / "file").touch()
    with pytest.raises(ArtifactError, match="exists already"):
        import_hf(str(folder), folder.parent / "primary", "en", task_out=folder.parent / "task")
    assert not (folder.parent / "primary").exists()


@pytest.mark.parametrize("place", ["primary", "primary/task"])
def test_a_task_is_not_written_into_the_primary(place: str, folder: Path) -> None:
    with pytest.raises(CheckpointError, match="which is the primary's"):
        import_hf(str(folder), folder.parent / "primary", "en", task_out=folder.parent / place)
    assert not (folder.parent / "primary").exists()


def test_an_encoder_alone_has_no_task_to_write(folder: Path) -> None:
    (folder / MODULES).unlink()
    with pytest.raises(CheckpointError, match=r"an encoder alone, without a task for .*task\. Leave .*--task-out"):
        import_hf(str(folder), folder.parent / "primary", "en", task_out=folder.parent / "task")
    assert not (folder.parent / "primary").exists()


def test_what_is_left_is_whole(folder: Path) -> None:
    made = import_hf(str(folder), folder.parent / "primary", "en", task_out=folder.parent / "task")
    assert made.task
    assert (made.task.folder, made.task.manifest.kind) == (folder.parent / "task", Kind.TASK)
    assert made.task.manifest.aligned_with == made.primary.fingerprint

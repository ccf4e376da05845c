"""Embedding models come in as a primary and a task; their vectors are those of sentence-transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from torch import nn

from lingraft.huggingface.importing import import_hf
from lingraft.huggingface.weights import CheckpointError
from lingraft.model.loading import load_primary
from lingraft.tasks.finetuned import TaskModel, load_task
from lingraft.tasks.retrieval import TokenizedTexts, embed
from tests.huggingface.checkpoints import LINES, MODEL_TYPES
from tests.huggingface.embedding_models import dense, make_embedding_model

CLOSE = 1e-5
TEXTS = [*LINES, "", " a  b ", "harbour " * 60]
"""Texts of unlike lengths: one is empty, one longer than every input."""


def imported(folder: Path, **given: Any) -> tuple[TaskModel, Any]:
    """The task of an embedding model with its own vocabulary, and its primary."""
    import_hf(str(folder / "model"), folder / "primary", "en", **given)
    primary, task = load_primary(folder / "primary"), load_task(folder / "primary-retrieval")
    task.swap_in(primary)
    return task, primary


def vectors(task: TaskModel, primary: Any, texts: list[str], prefix: str = "") -> np.ndarray:
    """Ours, of a task with its own vocabulary."""
    return embed(task.net, TokenizedTexts.of(texts, prefix, primary.tokenizer, task.shape)).numpy()


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() < CLOSE
    assert np.abs(theirs[0] - theirs[1]).max() > 100 * CLOSE


@pytest.mark.parametrize("model_type", [*MODEL_TYPES, "modernbert"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken"])
def test_vectors_of_every_family_and_pooling_are_those_of_sentence_transformers(
    model_type: str, pooling: str, tmp_path: Path
) -> None:
    """Padded batches and a text that is cut are among them, as are BERT's token types."""
    # The package cuts RoBERTa's texts to two tokens more than it has positions, unless it is told a length.
    longest = None if model_type in ("bert", "modernbert") else 38
    theirs = make_embedding_model(tmp_path, model_type, pooling=pooling, modules=[Normalize()], longest=longest)
    task, primary = imported(tmp_path)
    assert_same(vectors(task, primary, TEXTS), theirs.encode(TEXTS))
    assert primary.encoder.depths == ()


@pytest.mark.parametrize(("kept", "width"), [(8, 8), (32, 32), (40, 32)])
@pytest.mark.parametrize("modules", [[], [Normalize()]])
def test_vectors_are_as_long_as_the_model_keeps_them(
    kept: int, width: int, modules: list[nn.Module], tmp_path: Path
) -> None:
    make_embedding_model(tmp_path, modules=modules)
    path = tmp_path / "model" / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncate_dim": kept}))
    task, primary = imported(tmp_path)
    ours = vectors(task, primary, TEXTS)
    assert ours.shape[1] == task.net.width == width
    assert_same(ours, SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncate_dim": 0}))
    with pytest.raises(CheckpointError, match="has truncate_dim = 0; vectors keep 1 number or more"):
        import_hf(str(tmp_path / "model"), tmp_path / "other", "en")


def test_a_mean_by_the_root_of_the_length_that_is_normalised_is_the_mean(tmp_path: Path) -> None:
    theirs = make_embedding_model(tmp_path, pooling="mean_sqrt_len_tokens", modules=[Normalize()])
    task, primary = imported(tmp_path)
    assert_same(vectors(task, primary, TEXTS), theirs.encode(TEXTS))


@pytest.mark.parametrize("model_type", ["bert", "roberta", "xlm-roberta"])
def test_a_model_that_lower_cases_before_its_tokenizer_does_so_here(model_type: str, tmp_path: Path) -> None:
    longest = None if model_type == "bert" else 38
    make_embedding_model(tmp_path, model_type, longest=longest)
    path = tmp_path / "model" / "sentence_bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_lower_case": True}))
    if model_type == "bert":
        settings = tmp_path / "model" / "tokenizer_config.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"do_lower_case": False}))
    task, primary = imported(tmp_path)
    texts = [*TEXTS, *(text.upper() for text in TEXTS)]
    assert_same(vectors(task, primary, texts), SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(texts))
    assert primary.tokenizer.encode("THE HARBOUR") == primary.tokenizer.encode("the harbour")


@pytest.mark.parametrize(
    "modules",
    [
        [],
        [dense(16, nn.Tanh()), Normalize()],
        [Normalize(), dense(48, nn.GELU()), dense(8, width=48, bias=False)],
        [dense(24, nn.ReLU()), Normalize(), dense(24, nn.Sigmoid(), width=24)],
    ],
)
def test_modules_in_any_order_compute_the_same(modules: list[nn.Module], tmp_path: Path) -> None:
    theirs = make_embedding_model(tmp_path, "bert", modules=modules)
    task, primary = imported(tmp_path)
    assert_same(vectors(task, primary, TEXTS), theirs.encode(TEXTS))


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({"query": "the harbour: ", "document": "a garden: "}, None),
        ({"query": "the harbour: ", "passage": "a garden: "}, None),
        ({"search": "bread ", "query": "the boats ", "other": "kitchen "}, "search"),
        ({"query": "the boats "}, "query"),
        ({"corpus": "bread "}, "document"),
    ],
)
def test_prompts_stand_where_sentence_transformers_puts_them(
    prompts: dict[str, str], default: str | None, tmp_path: Path
) -> None:
    theirs = make_embedding_model(tmp_path, "bert", prompts=prompts, default_prompt=default)
    task, primary = imported(tmp_path)
    settings = task.settings.retrieval
    assert settings
    assert_same(vectors(task, primary, TEXTS, settings.query_prefix), theirs.encode_query(TEXTS))
    assert_same(vectors(task, primary, TEXTS, settings.passage_prefix), theirs.encode_document(TEXTS))
    assert_same(vectors(task, primary, TEXTS, settings.default_prefix), theirs.encode(TEXTS))


def test_a_prompt_of_passages_that_stands_before_none_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_embedding_model(tmp_path, "bert", prompts={"query": "the boats ", "passage": "bread "})
    imported(tmp_path)
    assert "prompt 'passage' stands before no passage, as encode_document takes 'document'" in capsys.readouterr().err


@pytest.mark.parametrize("longest", [12, 999])
def test_texts_are_cut_where_the_model_cuts_them(longest: int, tmp_path: Path) -> None:
    theirs = make_embedding_model(tmp_path, "modernbert", longest=longest)
    task, primary = imported(tmp_path)
    assert task.shape.block_tokens == primary.encoder.shape.block_tokens == min(longest, 40)
    theirs.max_seq_length = min(longest, 40)
    assert_same(vectors(task, primary, TEXTS), theirs.encode(TEXTS))


def test_a_primary_for_shorter_blocks_cuts_there(tmp_path: Path) -> None:
    theirs = make_embedding_model(tmp_path, "bert", longest=30)
    with pytest.raises(CheckpointError, match="block_tokens 31 must be from 8 to 30, the longest input"):
        imported(tmp_path, block_tokens=31)
    task, primary = imported(tmp_path, block_tokens=16)
    theirs.max_seq_length = 16
    assert len(primary.encoder.positions_TD) == 16
    assert_same(vectors(task, primary, TEXTS), theirs.encode(TEXTS))


def test_a_folder_of_the_older_generation_comes_in(tmp_path: Path) -> None:
    """Its transformer has a folder of its own, pooling has a flag for each mode, and modules have other names."""
    theirs = make_embedding_model(tmp_path, "bert", pooling="cls", modules=[dense(16, nn.Tanh()), Normalize()])
    folder = tmp_path / "model"
    apart = {"modules.json", "config_sentence_transformers.json"}
    (folder / "0_Transformer").mkdir()
    for path in [path for path in folder.iterdir() if path.is_file() and path.name not in apart]:
        path.rename(folder / "0_Transformer" / path.name)
    (folder / "3_Normalize" / "config.json").unlink()
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    flags = {f"pooling_mode_{mode}": mode == "cls_token" for mode in modes}
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, **flags})
    write(folder / "0_Transformer" / "sentence_bert_config.json", {"max_seq_length": 24, "do_lower_case": True})
    names = ("Transformer", "Pooling", "Dense", "Normalize")
    entries = [
        {"idx": place, "name": str(place), "path": f"{place}_{name}", "type": f"sentence_transformers.models.{name}"}
        for place, name in enumerate(names)
    ]
    write(folder / "modules.json", entries)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n", encoding="utf-8")
    task, primary = imported(tmp_path)
    assert primary.manifest.record["origin"]["licence"] == "apache-2.0"
    theirs.max_seq_length = 24
    assert_same(vectors(task, primary, TEXTS), theirs.encode(TEXTS))
    again = SentenceTransformer(str(folder), device="cpu")
    assert np.abs(again.encode(TEXTS) - theirs.encode(TEXTS)).max() < CLOSE


def test_the_origin_s_hash_tells_dense_layers_apart(tmp_path: Path) -> None:
    make_embedding_model(tmp_path, "bert", modules=[dense(16)])
    weights = tmp_path / "model" / "2_Dense" / "model.safetensors"
    hashes = []
    for factor in (1, 1, 2):
        save_file({name: tensor * factor for name, tensor in load_file(weights).items()}, weights)
        made = import_hf(str(tmp_path / "model"), tmp_path / f"primary-{len(hashes)}", "en").primary
        hashes.append(made.manifest.record["origin"]["sha"])
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("model_type", ["roberta", "modernbert"])
def test_padding_on_the_left_changes_no_position_of_others_than_bert(model_type: str, tmp_path: Path) -> None:
    make_embedding_model(tmp_path, model_type, pooling="cls", longest=38)
    path = tmp_path / "model" / "tokenizer_config.json"
    write(path, json.loads(path.read_text(encoding="utf-8")) | {"padding_side": "left"})
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert theirs.tokenizer.padding_side == "left"
    task, primary = imported(tmp_path)
    assert_same(vectors(task, primary, TEXTS), theirs.encode(TEXTS))


def test_weights_with_an_mlm_head_keep_it(tmp_path: Path) -> None:
    theirs = make_embedding_model(tmp_path, "bert")
    save_file(load_file(tmp_path / "masked-lm" / "model.safetensors"), tmp_path / "model" / "model.safetensors")
    task, primary = imported(tmp_path)
    assert primary.encoder.depths == (3,)
    assert_same(vectors(task, primary, TEXTS), theirs.encode(TEXTS))


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")

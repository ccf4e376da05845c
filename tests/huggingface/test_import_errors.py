"""What cannot become a primary is refused: messages say what is wrong and what to do, and nothing is left behind."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lingraft.artifacts.artifact import Kind
from lingraft.errors import ArtifactError, LingraftError, MissingExtraError, TokenizerError
from lingraft.huggingface.importing import import_hf
from lingraft.huggingface.weights import CheckpointError
from tests.huggingface.checkpoints import MODEL_TYPES, Made, make_tokenizer

WEIGHTS, TOKENIZER, CONFIG = "model.safetensors", "tokenizer.json", "config.json"


@pytest.fixture
def folder(checkpoints: dict[str, Made], tmp_path: Path) -> Path:
    """A RoBERTa that a test may damage."""
    return shutil.copytree(checkpoints["roberta"].folder, tmp_path / "checkpoint")


def refuse(folder: Path, error: type[LingraftError], message: str) -> None:
    out = folder.parent / "primary"
    with pytest.raises(error, match=message):
        import_hf(str(folder), out, "en")
    assert not out.exists()


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def test_a_pickle_is_refused_with_advice_and_is_not_opened(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04would run as it is opened")
    refuse(folder, CheckpointError, r"only pytorch_model\.bin\. A pickle.*safetensors/convert.*sandbox")


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    refuse(folder, CheckpointError, r"has no model\.safetensors, no weights")


def test_a_folder_without_configuration_is_refused(folder: Path) -> None:
    (folder / CONFIG).unlink()
    refuse(folder, CheckpointError, r"has no config\.json")


@pytest.mark.parametrize(("text", "message"), [("{", "is not JSON"), ("[]", "holds no JSON object")])
def test_a_damaged_configuration_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / CONFIG).write_text(text)
    refuse(folder, CheckpointError, message)


def test_damaged_weights_are_refused(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:500])
    refuse(folder, CheckpointError, r"model\.safetensors is not readable")


def test_another_architecture_is_refused_before_its_weights_are_read(folder: Path) -> None:
    edit(folder / CONFIG, lambda config: config.update(model_type="distilbert"))
    (folder / WEIGHTS).unlink()
    refuse(folder, CheckpointError, r"model_type is 'distilbert'; a primary can be made from roberta, xlm-roberta")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("lm_head.dense.weight"), r"lacks lm_head\.dense\.weight"),
        (lambda tensors: tensors.update({"adapter.up": torch.ones(3)}), r"holds adapter\.up"),
    ],
)
def test_missing_and_surplus_tensors_are_named(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], object], message: str
) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)
    refuse(folder, CheckpointError, message)


def test_a_tokenizer_with_more_pieces_than_rows_is_refused(folder: Path) -> None:
    larger = make_tokenizer("roberta")
    larger.add_tokens(["newword"])
    larger.save_pretrained(folder)
    refuse(folder, TokenizerError, r"has 420 rows, but its tokenizer has 421 pieces.*resize_token_embeddings")


def test_a_configuration_with_another_number_of_rows_is_refused(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["lm_head.bias"] = tensors["lm_head.bias"][:-1].clone()
    save_file(tensors, folder / WEIGHTS)
    refuse(folder, CheckpointError, r"lm_head\.bias is \(419,\), not \(420,\)")


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_configuration_that_counts_positions_by_another_pad_id_is_refused(
    model_type: str, checkpoints: dict[str, Made], tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoints[model_type].folder, tmp_path / "checkpoint")
    pad = checkpoints[model_type].tokenizer.pad_token_id
    edit(folder / CONFIG, lambda config: config.update(pad_token_id=pad + 4))
    if model_type == "bert":  # its positions do not depend on padding
        assert import_hf(str(folder), tmp_path / "primary", "en").manifest.kind is Kind.PRIMARY
    else:
        refuse(folder, TokenizerError, rf"has pad_token_id {pad + 4}, but its tokenizer pads with id {pad}\. Positions")


def test_a_tokenizer_without_a_mask_is_refused(folder: Path) -> None:
    def rename(tokenizer: dict[str, Any]) -> None:
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary["<other>"] = vocabulary.pop("<mask>")
        tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["content"] != "<mask>"]

    edit(folder / TOKENIZER, rename)
    refuse(folder, TokenizerError, r"no piece for mask; its special pieces are .*'<mask>'")


def test_a_piece_with_two_roles_is_refused(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", lambda config: config.update(pad_token="</s>"))
    refuse(folder, TokenizerError, r"one piece for several roles.*'pad': '</s>'")


def test_a_checkpoint_without_a_tokenizer_is_refused(folder: Path) -> None:
    (folder / TOKENIZER).unlink()
    (folder / "tokenizer_config.json").unlink()
    refuse(folder, TokenizerError, r"has no tokenizer\. Put its files there: tokenizer\.json")


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_damaged_tokenizer_is_refused(folder: Path, kept: float) -> None:
    whole = (folder / TOKENIZER).read_bytes()
    (folder / TOKENIZER).write_bytes(whole[: int(len(whole) * kept)])
    refuse(folder, TokenizerError, r"checkpoint/tokenizer\.json is damaged, or no tokenizer\.json: .*Fetch it anew")


def test_damage_beside_a_whole_tokenizer_is_told_apart(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{")
    refuse(folder, TokenizerError, r"cannot be loaded: .*Its tokenizer\.json is whole: correct the other files")


def test_a_tokenizer_that_needs_code_of_its_own_is_refused(folder: Path) -> None:
    (folder / TOKENIZER).unlink()
    own = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(own))
    (folder / "own.py").write_text("raise SystemExit('ran')")
    refuse(folder, TokenizerError, r"cannot be loaded")


def test_a_damaged_index_is_refused(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    (folder / WEIGHTS).rename(folder / "model-00001-of-00001.safetensors")
    index.write_text(json.dumps({"weight_map": {"lm_head.bias": "model-00002-of-00002.safetensors"}}))
    refuse(folder, CheckpointError, r"lacks \['model-00002-of-00002\.safetensors'\]")
    index.write_text(json.dumps({"weight_map": {"lm_head.other": "model-00001-of-00001.safetensors"}}))
    refuse(folder, CheckpointError, r"speaks of \['lm_head\.other'\]")
    index.write_text(json.dumps({"weight_map": {"lm_head.bias": "../elsewhere.safetensors"}}))
    refuse(folder, CheckpointError, r"only safetensors beside it")
    index.write_text("{}")
    refuse(folder, CheckpointError, r"has no weight_map")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refuse(tmp_path / "none", CheckpointError, r"there is no folder .*none\. Give the folder of a checkpoint")


def test_a_revision_of_a_folder_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="is a folder, which has no revision 'v1'"):
        import_hf(str(folder), folder.parent / "primary", "en", revision="v1")


def test_a_language_that_is_no_tag_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="'English' is no BCP 47 tag"):
        import_hf(str(folder), folder.parent / "primary", "English")


def test_an_output_that_holds_something_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    with pytest.raises(ArtifactError, match="exists already"):
        import_hf("no-such-model", tmp_path / "out", "en")


@pytest.mark.parametrize("package", ["transformers", "tokenizers"])
def test_a_missing_package_is_said_with_its_extra(package: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    refuse(folder, MissingExtraError, rf"{package} is not installed.*lingraft\[huggingface\]")


def test_a_hub_id_without_the_hubs_package_is_said_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"huggingface_hub is not installed.*lingraft\[huggingface\]"):
        import_hf("roberta-base", tmp_path / "primary", "en")

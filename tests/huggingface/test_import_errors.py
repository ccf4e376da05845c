"""What cannot become a primary is refused: messages say what is wrong and what to do, and nothing is left behind."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from lingraft.artifacts.manifest import Kind
from lingraft.errors import ArtifactError, LingraftError, MissingExtraError, RecipeError, TokenizerError
from lingraft.huggingface.importing import import_hf
from lingraft.huggingface.weights import CheckpointError
from tests.huggingface.checkpoints import Made, make_tokenizer

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


INDEX, SHARD = "model.safetensors.index.json", "model-00001-of-00001.safetensors"
OWN_CLASS = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}}
PICKLE = {WEIGHTS: None, "pytorch_model.bin": b"\x80\x04would run as it is opened"}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"
DAMAGED_TOKENIZER = r"checkpoint/tokenizer\.json is damaged, or no tokenizer\.json: .*Fetch it anew"


def shards(places: dict[str, str]) -> dict[str, Any]:
    return {INDEX: {"weight_map": places}, WEIGHTS: None, SHARD: b""}


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        (PICKLE, CheckpointError, r"only pytorch_model\.bin\. A pickle.*safetensors/convert.*sandbox.*save_pretrained"),
        ({WEIGHTS: None}, CheckpointError, r"has no model\.safetensors, and no other weights"),
        ({WEIGHTS: b"\x10"}, CheckpointError, r"model\.safetensors is not readable: .*Fetch it anew"),
        ({WEIGHTS: b""}, CheckpointError, r"model\.safetensors is not readable: .*Fetch it anew"),
        ({WEIGHTS: POINTER}, CheckpointError, r"model\.safetensors in .* are pointers of Git LFS.*Run `git lfs pull`"),
        ({TOKENIZER: POINTER}, CheckpointError, r"tokenizer\.json in .* are pointers of Git LFS.*Run `git lfs pull`"),
        ({CONFIG: None}, CheckpointError, r"has no config\.json"),
        ({CONFIG: b'{"model_type": "rob'}, CheckpointError, r"config\.json is not JSON: .*Fetch it anew"),
        ({CONFIG: b"\xff"}, CheckpointError, r"config\.json is not JSON: .*Fetch it anew"),
        ({CONFIG: b"[]"}, CheckpointError, "holds no JSON object"),
        (
            {CONFIG: {"model_type": "distilbert"}, WEIGHTS: None},
            CheckpointError,
            r"model_type is 'distilbert'",
        ),
        (
            {"adapter_config.json": {"peft_type": "PROMPT_TUNING"}},
            CheckpointError,
            r"adapter_config\.json says that an adapter or prompts of its own weights .*peft",
        ),
        (shards({"lm_head.bias": "model-2.safetensors"}), CheckpointError, r"lacks \['model-2\.safetensors'\]"),
        (shards({"lm_head.bias": "../elsewhere.safetensors"}), CheckpointError, "only safetensors beside it"),
        ({INDEX: {}, WEIGHTS: None}, CheckpointError, "has no weight_map"),
        (
            {TOKENIZER: None, "tokenizer_config.json": None},
            TokenizerError,
            r"has no tokenizer\. Put its files there",
        ),
        ({TOKENIZER: b""}, TokenizerError, DAMAGED_TOKENIZER),
        ({TOKENIZER: b'{"version": "1.0", "model": {'}, TokenizerError, DAMAGED_TOKENIZER),
        ({"tokenizer_config.json": b"{"}, TokenizerError, r"cannot be loaded: .*Its tokenizer\.json is whole: correct"),
        (
            {TOKENIZER: None, "tokenizer_config.json": OWN_CLASS, "own.py": b"raise SystemExit('ran')"},
            TokenizerError,
            "cannot be loaded",
        ),
    ],
)
def test_files_that_are_missing_damaged_or_dangerous_are_refused(
    folder: Path, files: dict[str, bytes | dict[str, Any] | None], error: type[LingraftError], message: str
) -> None:
    """Pickles, and code that comes with a checkpoint, are not run."""
    for name, content in files.items():
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    refuse(folder, error, message)


def test_a_place_that_is_none_and_a_language_that_is_none_are_refused(folder: Path, tmp_path: Path) -> None:
    refuse(tmp_path / "none", CheckpointError, r"there is no folder .*none\. Give the folder of a checkpoint")
    refuse(folder / WEIGHTS, CheckpointError, r"model\.safetensors is a file\. Give the folder that it is in")
    with pytest.raises(CheckpointError, match="is a folder, which has no revision 'v1'"):
        import_hf(str(folder), tmp_path / "primary", "en", revision="v1")
    with pytest.raises(RecipeError, match=r"'English' is no BCP 47 tag.* Is 'en' meant"):
        import_hf(str(folder), tmp_path / "primary", "English")


@pytest.mark.parametrize(
    ("model_type", "vocabulary"), [("bert", "vocab.txt"), ("roberta", "vocab.json"), ("xlm-roberta", "sentencepiece.*")]
)
def test_settings_of_a_tokenizer_without_its_pieces_are_refused(
    model_type: str, vocabulary: str, checkpoints: dict[str, Made], tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoints[model_type].folder, tmp_path / "checkpoint")
    (folder / TOKENIZER).unlink()
    refuse(
        folder, TokenizerError, rf"settings of a \w+Tokenizer, but no pieces: no {vocabulary}\. Put it or a tokenizer"
    )


def test_weights_that_end_too_early_are_refused(folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    for kept in (len(whole) - 1, len(whole) // 2, 100):
        (folder / WEIGHTS).write_bytes(whole[:kept])
        refuse(folder, CheckpointError, r"model\.safetensors is not readable: .*Fetch it anew")


def test_an_index_that_speaks_of_what_its_files_do_not_hold_is_refused(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / SHARD)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"lm_head.other": SHARD}}))
    refuse(folder, CheckpointError, r"speaks of \['lm_head\.other'\]")


def test_an_encoder_inside_of_another_model_is_refused(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file({f"query_encoder.{name}": tensor for name, tensor in tensors.items()}, folder / WEIGHTS)
    refuse(folder, CheckpointError, r"begin with 'query_encoder\.' .*part of another model.*'roberta'.*save_pretrained")


def test_a_tokenizer_with_more_pieces_than_rows_is_refused(folder: Path) -> None:
    larger = make_tokenizer("roberta")
    larger.add_tokens(["newword"])
    larger.save_pretrained(folder)
    refuse(folder, TokenizerError, r"has 420 rows, but its tokenizer has 421 pieces.*resize_token_embeddings")


@pytest.mark.parametrize("model_type", ["roberta", "bert"])
def test_a_configuration_that_counts_positions_by_another_pad_id_is_refused(
    model_type: str, checkpoints: dict[str, Made], tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoints[model_type].folder, tmp_path / "checkpoint")
    pad = checkpoints[model_type].tokenizer.pad_token_id
    edit(folder / CONFIG, lambda config: config.update(pad_token_id=pad + 4))
    if model_type == "bert":  # its positions do not depend on padding
        found = import_hf(str(folder), tmp_path / "primary", "en").primary
        assert found.manifest.kind is Kind.PRIMARY
        edit(folder / CONFIG, lambda config: config.update(pad_token_id=None))
        assert import_hf(str(folder), tmp_path / "other", "en").primary.fingerprint == found.fingerprint
    else:
        refuse(folder, TokenizerError, rf"has pad_token_id {pad + 4}, but its tokenizer pads with id {pad}\. Positions")


def test_a_tokenizer_without_a_mask_or_with_a_piece_of_two_roles_is_refused(folder: Path) -> None:
    def rename(tokenizer: dict[str, Any]) -> None:
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary["<other>"] = vocabulary.pop("<mask>")
        tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["content"] != "<mask>"]

    config = (folder / "tokenizer_config.json").read_bytes()
    edit(folder / "tokenizer_config.json", lambda config: config.update(pad_token="</s>"))
    refuse(folder, TokenizerError, r"one piece for several roles.*'pad': '</s>'")
    (folder / "tokenizer_config.json").write_bytes(config)
    edit(folder / TOKENIZER, rename)
    refuse(folder, TokenizerError, r"no piece for mask; its special pieces are .*'<mask>'")


def test_an_output_that_holds_something_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    with pytest.raises(ArtifactError, match="exists already"):
        import_hf("no-such-model", tmp_path / "out", "en")


def test_without_transformers_the_extra_that_brings_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"transformers is not installed.*lingraft\[huggingface\]"):
        import_hf("roberta-base", tmp_path / "primary", "en")

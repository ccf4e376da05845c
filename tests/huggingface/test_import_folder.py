"""A checkpoint in a folder becomes a primary that computes, cuts text and is judged like one of our own."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Cost, Kind
from lingraft.data.tokenizer.pieces import SpecialPieces
from lingraft.huggingface.hub import INDEX
from lingraft.huggingface.importing import import_hf
from lingraft.huggingface.weights import CheckpointError
from lingraft.model.loading import LoadedPrimary, load_primary
from tests.huggingface.checkpoints import LINES, MODEL_TYPES, Made, logits_of, make_checkpoint, make_tokenizer

CLOSE = 1e-5


def imported(made: Made, out: Path) -> LoadedPrimary:
    import_hf(str(made.folder), out, "en")
    return load_primary(out)


@torch.no_grad()
def difference(made: Made, primary: LoadedPrimary) -> float:
    """Largest between our logits and those of transformers, over a padded batch of lines with special tokens."""
    batch = made.tokenizer([line[:24] for line in LINES[:3]], padding=True, return_tensors="pt")
    tokens_BT, visible_BT = batch["input_ids"], batch["attention_mask"].bool()
    places_M, depth = visible_BT.flatten().nonzero().flatten(), primary.encoder.shape.layers
    ours_MV = primary.encoder.eval().masked_logits(tokens_BT, places_M, (depth,), visible_BT)[depth]
    theirs_MV = logits_of(made.model, tokens_BT, visible_BT)[visible_BT]
    return float((theirs_MV[:, : len(made.tokenizer)] - ours_MV).abs().max())


@pytest.mark.parametrize("model_type", ["roberta", "bert", "modernbert"])
def test_rows_that_pad_the_token_table_are_left_out_and_logits_of_pieces_stay(
    model_type: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pieces = len(make_tokenizer(model_type))
    made = make_checkpoint(tmp_path / "checkpoint", model_type, vocab_size=pieces + 13)
    primary = imported(made, tmp_path / "primary")
    assert f"13 rows of the token table behind the tokenizer's {pieces} pieces are left out" in capsys.readouterr().err
    assert len(primary.encoder.vocabulary) == len(primary.tokenizer) == pieces
    assert difference(made, primary) < CLOSE


@pytest.mark.parametrize("model_type", ["roberta", "bert", "modernbert"])
def test_a_primary_may_be_for_shorter_inputs_than_the_checkpoint(model_type: str, tmp_path: Path) -> None:
    made = make_checkpoint(tmp_path / "checkpoint", model_type)
    whole = imported(made, tmp_path / "whole")
    import_hf(str(made.folder), tmp_path / "short", "en", block_tokens=24)
    short = load_primary(tmp_path / "short")
    assert short.encoder.shape == whole.encoder.shape.model_copy(update={"block_tokens": 24})
    tokens_BT, depth = torch.randint(5, 60, (2, 24)), short.encoder.shape.layers
    one, other = (each.encoder.eval().masked_logits(tokens_BT, torch.arange(48), (depth,)) for each in (short, whole))
    assert torch.equal(one[depth], other[depth])
    longest = whole.encoder.shape.block_tokens
    for wrong in (7, longest + 1):
        with pytest.raises(CheckpointError, match=rf"block_tokens {wrong} must be from 8 to {longest}"):
            import_hf(str(made.folder), tmp_path / "wrong", "en", block_tokens=wrong)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_loaded_primary_has_the_logits_of_transformers_and_the_tokenizer_with_its_ids(
    model_type: str, checkpoints: dict[str, Made], tmp_path: Path
) -> None:
    made = checkpoints[model_type]
    primary, theirs = imported(made, tmp_path / "primary"), AutoTokenizer.from_pretrained(made.folder)
    assert difference(made, primary) < CLOSE
    assert (tmp_path / "primary" / "tokenizer.json").read_bytes() == (made.folder / "tokenizer.json").read_bytes()
    assert primary.tokenizer.encode_all(LINES) == theirs(LINES, add_special_tokens=False)["input_ids"]
    ids = SpecialPieces(
        theirs.cls_token_id, theirs.pad_token_id, theirs.sep_token_id, theirs.unk_token_id, theirs.mask_token_id
    )
    assert primary.tokenizer.special == primary.encoder.vocabulary.special == ids
    assert primary.manifest.details["special_ids"] == ids._asdict()


def test_the_manifest_says_where_it_is_from(checkpoints: dict[str, Made], tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoints["bert"].folder, tmp_path / "my-bert")
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# My BERT\n")
    manifest = import_hf(str(folder), tmp_path / "primary", "en").primary.manifest
    origin = manifest.record["origin"]
    assert (manifest.kind, manifest.language, manifest.cost) == (Kind.PRIMARY, "en", Cost())
    assert (origin["model_type"], origin["name"], origin["revision"]) == ("bert", "my-bert", None)
    assert (len(origin["sha"]), origin["licence"]) == (64, "apache-2.0")
    assert manifest.details["shape"]["mlm_heads"] == [3]
    assert manifest.tokenizer_hash == load_primary(tmp_path / "primary").tokenizer.hash
    assert (tmp_path / "primary" / "history.jsonl").read_bytes() == b""


def test_shards_under_an_index_are_read(checkpoints: dict[str, Made], tmp_path: Path) -> None:
    whole = checkpoints["roberta"]
    folder = shutil.copytree(whole.folder, tmp_path / "shards", ignore=shutil.ignore_patterns("*.safetensors"))
    whole.model.save_pretrained(folder, max_shard_size="30KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    assert (folder / INDEX).is_file()
    sharded = import_hf(str(folder), tmp_path / "a", "en").primary
    assert sharded.fingerprint == import_hf(str(whole.folder), tmp_path / "b", "en").primary.fingerprint


@pytest.mark.parametrize("model_type", ["bert", "modernbert"])
@pytest.mark.parametrize("before", ["_orig_mod.", "module.", "model.", "module._orig_mod.", "model.model."])
@pytest.mark.parametrize("alone", [False, True])
def test_a_checkpoint_of_a_wrapped_model_is_that_of_the_model(
    model_type: str, before: str, alone: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_checkpoint(tmp_path / "checkpoint", model_type)
    if alone:
        made.model.base_model.save_pretrained(made.folder)
    plain = import_hf(str(made.folder), tmp_path / "plain", "en").primary
    assert "of a wrapped model" not in capsys.readouterr().err
    tensors = load_file(made.folder / "model.safetensors")
    save_file({before + name: tensor for name, tensor in tensors.items()}, made.folder / "model.safetensors")
    assert import_hf(str(made.folder), tmp_path / "wrapped", "en").primary.fingerprint == plain.fingerprint
    said = capsys.readouterr().err
    assert " is that of a wrapped model: it and all others were unwrapped" in said or (
        (model_type, before, alone) == ("modernbert", "model.", True)  # as ModernBERT's own masked LM has it
    )


def test_a_part_of_the_model_that_was_wrapped_alone_is_read(tmp_path: Path) -> None:
    made = make_checkpoint(tmp_path / "checkpoint", "roberta")
    plain = import_hf(str(made.folder), tmp_path / "plain", "en").primary
    tensors = load_file(made.folder / "model.safetensors")
    inside = {name.replace("encoder.", "encoder._fsdp_wrapped_module."): tensor for name, tensor in tensors.items()}
    save_file(inside, made.folder / "model.safetensors")
    assert import_hf(str(made.folder), tmp_path / "wrapped", "en").primary.fingerprint == plain.fingerprint


def test_what_is_left_out_and_changed_is_said(
    checkpoints: dict[str, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(checkpoints["roberta"].folder, tmp_path / "half")
    halves = {name: tensor.half() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(halves | {"roberta.pooler.dense.bias": torch.ones(32)}, folder / "model.safetensors")
    changed(folder / "config.json", attention_probs_dropout_prob=0.1)
    import_hf(str(folder), tmp_path / "primary", "en")
    said = capsys.readouterr().err
    assert "roberta.pooler.dense.bias is left out: the pooler" in said
    assert "weights of torch.float16 became float32" in said
    assert "dropout 0.0 is kept" in said
    assert difference(checkpoints["roberta"], load_primary(tmp_path / "primary")) < 0.05


def changed(path: Path, **settings: Any) -> None:
    """Overwrite keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def slow_files(folder: Path, tokenizer: Any, model_type: str) -> None:
    """The files from before there was a tokenizer.json."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    if model_type == "bert":
        pieces = sorted(model["vocab"], key=model["vocab"].get)
        (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    else:
        (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
        merges = "\n".join(" ".join(merge) for merge in model["merges"])
        (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")


@pytest.mark.parametrize("model_type", ["roberta", "bert"])
def test_a_slow_tokenizer_is_made_a_fast_one_with_the_same_ids(
    model_type: str, checkpoints: dict[str, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = checkpoints[model_type]
    folder = shutil.copytree(made.folder, tmp_path / "slow")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    slow_files(folder, made.tokenizer, model_type)
    import_hf(str(folder), tmp_path / "primary", "en")
    primary = load_primary(tmp_path / "primary")
    assert primary.tokenizer.encode_all(LINES) == made.tokenizer(LINES, add_special_tokens=False)["input_ids"]
    assert primary.tokenizer.special.mask == made.tokenizer.mask_token_id
    assert "tokenizer.json was made from the checkpoint's slow tokenizer" in capsys.readouterr().err


def test_a_table_whose_ids_take_more_than_two_bytes_comes_in(tmp_path: Path) -> None:
    """XLM-R has 250,002 rows."""
    rows = 65_602
    small = make_tokenizer("xlm-roberta")
    extra = [f"▁more{number}" for number in range(rows - len(small))]
    vocabulary = [tuple(pair) for pair in json.loads(small.backend_tokenizer.to_str())["model"]["vocab"]]
    tokenizer = type(small)(vocab=[*vocabulary[:-1], *((piece, -20.0) for piece in extra), vocabulary[-1]])
    settings = {"vocab_size": rows, "hidden_size": 8, "intermediate_size": 8}
    made = make_checkpoint(tmp_path / "big", "xlm-roberta", **settings)._replace(tokenizer=tokenizer)
    tokenizer.save_pretrained(made.folder)
    primary = imported(made, tmp_path / "primary")
    assert (len(primary.tokenizer), primary.tokenizer.special.mask) == (rows, rows - 1)
    assert difference(made, primary) < CLOSE
    Artifact.load(tmp_path / "primary", Kind.PRIMARY)

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.gate import PARITY_TOLERANCE
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.errors import AlignmentError, ExportError
from lingraft.export import export_bundle as export
from lingraft.serving.bundle import Bundle
from lingraft.tasks.finetuned import load_task
from tests.serving.answers import LANGUAGES, onnx_logits, pytorch_logits, rows_of, sentences
from tests.tiny import Pieces, Tiny, write_embeddings, write_primary, write_task


def test_the_manifest_says_what_is_in_the_bundle_and_how_near_each_language_is_to_pytorch(
    pieces: Pieces, bundle: Path, tiny: Tiny
) -> None:
    manifest = Artifact.load(bundle, Kind.BUNDLE).manifest
    primary, task = Artifact.load(tiny.primary, Kind.PRIMARY), Artifact.load(tiny.task, Kind.TASK)
    assert manifest.aligned_with == primary.fingerprint
    assert manifest.data_hashes["task"] == task.fingerprint
    parts = (f"{language}/{part}" for language in LANGUAGES for part in ("table", "golden"))
    assert set(manifest.fingerprints) == {"body", *parts}
    assert manifest.details["languages"] == list(LANGUAGES)
    assert manifest.details["labels"] == ["garden", "harbour", "kitchen"]
    assert manifest.details["task"] == "topic"
    assert manifest.details["shape"] == pieces.recipe.encoder.model_dump(mode="json")
    own = {"file": "tokenizer.json", "special_ids": DEFAULT_SPECIAL_IDS._asdict()}
    assert manifest.details["tokenizers"] == dict.fromkeys(LANGUAGES, own)
    assert (manifest.details["kind"], manifest.details["metric"]) == ("documents", "accuracy")
    assert (manifest.details["precisions"], manifest.details["tables"]) == (["fp32"], "float32")
    assert set(manifest.record["parity"]["fp32"]) == set(LANGUAGES)
    for found in manifest.record["parity"]["fp32"].values():
        assert 0 <= found["difference"] <= PARITY_TOLERANCE


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_body_with_a_language_s_table_gives_pytorch_s_logits_of_that_language(
    bundle: Path, tiny: Tiny, language: str
) -> None:
    opened = Bundle.load(bundle)
    rows = rows_of(tiny, language, sentences(language, words=(1, 4, 60)))
    assert [len(row) for row in rows] == sorted({len(row) for row in rows})
    actual_BC = onnx_logits(opened, language, rows)
    torch.testing.assert_close(actual_BC, pytorch_logits(tiny, language, rows), rtol=0, atol=PARITY_TOLERANCE)


def test_the_body_is_one_copy_of_its_weights_without_the_masked_language_heads(bundle: Path, tiny: Tiny) -> None:
    classifier = load_task(tiny.task).net
    heads = sum(parameter.numel() for parameter in classifier.encoder.heads.parameters())
    weights = sum(parameter.numel() for parameter in classifier.parameters()) - heads
    exported = sum(tensor.numel() for tensor in load_file(bundle / "body.safetensors").values())
    assert heads > 0.05 * weights
    assert exported == pytest.approx(weights, rel=0.01)
    # Only the graph: every weight is in the file beside it.
    assert not {name for name in (path.name for path in bundle.iterdir()) if name.endswith(".data")}
    assert b".py" not in (bundle / "body.onnx").read_bytes()


def test_another_user_may_read_the_bundle(bundle: Path) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in [bundle, *bundle.rglob("*")]}
    assert modes == {name: 0o644 if "." in name else 0o755 for name in modes}


@pytest.mark.parametrize("strange", ["embeddings", "task"])
def test_what_belongs_to_another_primary_is_refused_with_both_fingerprints(
    pieces: Pieces, tiny: Tiny, tmp_path: Path, strange: str
) -> None:
    other = write_primary(pieces.recipe, pieces.tokenizers["en"], tmp_path / "other", seed=9)
    german = write_embeddings(pieces.tokenizers["de"], other, tmp_path / "de", seed=3)
    with pytest.raises(AlignmentError) as caught:
        export(tiny.primary if strange == "embeddings" else other, tiny.task, [german], tmp_path / "bundle")
    for folder in (tiny.primary, other):
        assert Artifact.load(folder, Kind.PRIMARY).fingerprint in str(caught.value)


def test_two_embeddings_of_one_language_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="'de', 'de'"):
        export(tiny.primary, tiny.task, [tiny.embeddings["de"]] * 2, tmp_path / "bundle")


def test_a_body_that_does_not_compute_what_pytorch_does_is_not_written(
    pieces: Pieces, tiny: Tiny, tmp_path: Path
) -> None:
    huge = write_task(pieces.recipe, tiny.primary, tmp_path / "huge", seed=2, scale=1e30)
    with pytest.raises(ExportError, match="en nan, de nan"):
        export(tiny.primary, huge, [tiny.embeddings["de"]], tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()

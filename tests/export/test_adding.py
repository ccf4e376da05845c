"""A language that comes to a bundle which is there."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.cli import app
from lingraft.config.encoder import Family
from lingraft.config.gate import PARITY_TOLERANCE
from lingraft.errors import AlignmentError
from lingraft.export import add_to_bundle
from lingraft.export import export_bundle as export
from lingraft.serving.bundle import Bundle
from tests.export.test_kinds import MODERN, ROBERTA, in_family, task_of
from tests.serving.answers import onnx_logits, pytorch_logits, rows_of, sentences
from tests.tiny import Pieces, Tiny, write_embeddings, write_primary


def test_a_language_is_added_as_if_it_had_been_there_from_the_beginning(tiny: Tiny, tmp_path: Path) -> None:
    de, tr = tiny.embeddings["de"], tiny.embeddings["tr"]
    whole = export(tiny.primary, tiny.task, [de, tr], tmp_path / "whole", ["int8"], "int8")
    export(tiny.primary, tiny.task, [de], tmp_path / "first", ["int8"], "int8")
    command = ["export", "add", str(tmp_path / "first"), f"--embeddings={tr}", f"--out={tmp_path / 'second'}"]
    CliRunner().invoke(app, command, catch_exceptions=False)
    made = Artifact.load(tmp_path / "second", Kind.BUNDLE)
    assert made.fingerprint == whole.fingerprint
    assert made.manifest == whole.manifest
    opened = [Bundle.load(tmp_path / name) for name in ("first", "second")]
    assert [*opened[0].languages] == ["en", "de"]
    assert opened[0].body_fingerprint == opened[1].body_fingerprint
    assert opened[0].fingerprint != opened[1].fingerprint
    for name in ("body.onnx", "body.safetensors", "en/table.safetensors", "de/table.safetensors"):
        assert (tmp_path / "first" / name).samefile(tmp_path / "second" / name)


def test_where_there_are_no_links_files_are_copied(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(tiny.primary, tiny.task, [], tmp_path / "first")

    def refuse(self: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    add_to_bundle(tmp_path / "first", tiny.embeddings["tr"], tmp_path / "second")
    assert not (tmp_path / "first" / "body.onnx").samefile(tmp_path / "second" / "body.onnx")
    Bundle.load(tmp_path / "second").run_self_test()


def test_new_embeddings_of_a_language_take_the_place_of_the_old_ones(
    pieces: Pieces, tiny: Tiny, tmp_path: Path
) -> None:
    newer = write_embeddings(pieces.tokenizers["de"], tiny.primary, tmp_path / "newer", seed=77)
    export(tiny.primary, tiny.task, [tiny.embeddings["de"]], tmp_path / "first")
    add_to_bundle(tmp_path / "first", newer, tmp_path / "second")
    first, second = (Bundle.load(tmp_path / name) for name in ("first", "second"))
    assert [*second.languages] == ["en", "de"]
    assert first.languages["de"].fingerprint != second.languages["de"].fingerprint
    rows = rows_of(tiny, "de", sentences("de"))
    changed = Tiny(tiny.primary, tiny.task, {"de": newer})
    for opened, expected in ((first, tiny), (second, changed)):
        expected_BC = pytorch_logits(expected, "de", rows)
        torch.testing.assert_close(onnx_logits(opened, "de", rows), expected_BC, rtol=0, atol=PARITY_TOLERANCE)


@pytest.mark.parametrize(
    ("kind", "family"),
    [("questions", ROBERTA), ("primary", ROBERTA), ("tags", MODERN), ("primary", MODERN)],
)
def test_a_bundle_of_each_kind_takes_a_language(pieces: Pieces, tmp_path: Path, kind: str, family: Family) -> None:
    own, tiny = in_family(pieces, family)
    task = None if kind == "primary" else task_of(kind, own, tiny, tmp_path)  # type: ignore[arg-type]
    export(tiny.primary, task, [], tmp_path / "first")
    added = add_to_bundle(tmp_path / "first", tiny.embeddings["de"], tmp_path / "second")
    assert set(added.manifest.record["parity"]["fp32"]) == {"en", "de"}
    opened = Bundle.load(tmp_path / "second")
    opened.run_self_test()
    assert (opened.languages["de"].bias_V is not None) == (kind == "primary")


def test_embeddings_of_another_primary_are_refused(pieces: Pieces, tiny: Tiny, tmp_path: Path) -> None:
    other = write_primary(pieces.recipe, pieces.tokenizers["en"], tmp_path / "other", seed=9)
    strange = write_embeddings(pieces.tokenizers["de"], other, tmp_path / "de", seed=3)
    export(tiny.primary, tiny.task, [], tmp_path / "first")
    with pytest.raises(AlignmentError, match=Artifact.load(other, Kind.PRIMARY).fingerprint):
        add_to_bundle(tmp_path / "first", strange, tmp_path / "second")
    assert not (tmp_path / "second").exists()

"""Models that need nothing of ours: opened by plain ONNX Runtime in a Python that cannot import lingraft or PyTorch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir
import pytest
import torch
from typer.testing import CliRunner

from lingraft.bundle.format import TableFormat
from lingraft.cli import app
from lingraft.config.encoder import Family
from lingraft.config.gate import PARITY_TOLERANCE
from lingraft.errors import ArtifactError, ExportError
from lingraft.export import export_standalone
from tests.export.test_kinds import in_family
from tests.serving.answers import LANGUAGES, pytorch_logits, rows_of, sentences
from tests.tiny import Pieces, Tiny

PLAIN = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"lingraft", "torch", "onnx", "onnx_ir", "safetensors"}:
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
import numpy, onnxruntime

model, given, out = sys.argv[1:]
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
numpy.savez(out, *session.run(None, dict(numpy.load(given))))
"""


def plainly(model: Path, given: dict[str, np.ndarray], folder: Path) -> list[np.ndarray]:
    """Outputs of a model by ONNX Runtime alone."""
    np.savez(folder / "given.npz", **given)
    command = [sys.executable, "-I", "-c", PLAIN, str(model), str(folder / "given.npz"), str(folder / "out.npz")]
    subprocess.run(command, check=True, cwd=folder)
    return [*np.load(folder / "out.npz").values()]


def padded(rows: list[list[int]]) -> dict[str, np.ndarray]:
    longest = max(map(len, rows))
    ids = np.array([[*row, *[1] * (longest - len(row))] for row in rows])
    return {
        "input_ids": ids,
        "attention_mask": np.array([[int(at < len(row)) for at in range(longest)] for row in rows]),
    }


@pytest.mark.parametrize("tables", ["float32", "int8"])
def test_each_language_is_opened_with_nothing_of_ours_and_answers_like_pytorch(
    tiny: Tiny, tmp_path: Path, tables: TableFormat
) -> None:
    found = export_standalone(tiny.primary, tiny.task, [*tiny.embeddings.values()], tmp_path / "out", tables=tables)
    assert set(found) == set(LANGUAGES)
    assert all(0 <= each <= PARITY_TOLERANCE for each in found.values())
    rows = rows_of(tiny, "de", sentences("de"))
    (logits_BC,) = plainly(tmp_path / "out" / "de.onnx", padded(rows), tmp_path)
    far = {"float32": PARITY_TOLERANCE, "int8": 1.0}[tables]
    expected_BC = pytorch_logits(tiny, "de", rows)
    torch.testing.assert_close(torch.from_numpy(logits_BC), expected_BC, rtol=0, atol=far)


def test_all_languages_point_into_one_file_of_the_body(tiny: Tiny, tmp_path: Path) -> None:
    export_standalone(tiny.primary, tiny.task, [*tiny.embeddings.values()], tmp_path / "out")
    held = sorted(path.name for path in (tmp_path / "out").iterdir())
    per_language = ("onnx", "safetensors", "tokenizer.json")
    assert held == sorted(["body.safetensors", *(f"{each}.{end}" for each in LANGUAGES for end in per_language)])
    for language in LANGUAGES:
        model = onnx_ir.load(tmp_path / "out" / f"{language}.onnx")
        places = {
            name: value.const_value.location
            for name, value in model.graph.initializers.items()
            if isinstance(value.const_value, onnx_ir.ExternalTensor)
        }
        assert places.pop("table_VD") == f"{language}.safetensors"
        assert set(places.values()) == {"body.safetensors"}
        facts = {"task": "topic", "kind": "documents", "labels": "garden, harbour, kitchen", "language": language}
        assert model.metadata_props == facts


def test_a_primary_of_two_segments_fills_masks(pieces: Pieces, tmp_path: Path) -> None:
    _, tiny = in_family(pieces, Family(position_offset=0, segments=2, separators=1))
    export_standalone(tiny.primary, None, [tiny.embeddings["de"]], tmp_path / "out", "int8")
    given = padded([[0, 7, 4, 9, 2], [0, 4, 2]])
    outputs = plainly(tmp_path / "out" / "de.onnx", given | {"token_type_ids": np.zeros((2, 5), np.int64)}, tmp_path)
    assert [each.shape for each in outputs] == [(2, 5, 32), (2, 5, 32), (2, 5, 120)]
    with pytest.raises(ExportError, match="float32 tables, not int8"):
        export_standalone(tiny.primary, None, [], tmp_path / "other", tables="int8")


@pytest.mark.parametrize("option", ["--judge", "--text=text", "--blocks=blocks"])
def test_options_of_bundles_alone_are_refused(option: str, tiny: Tiny, tmp_path: Path) -> None:
    given = [f"--primary={tiny.primary}", f"--task={tiny.task}", f"--embeddings={tiny.embeddings['de']}"]
    command = ["export", "onnx", *given, f"--out={tmp_path / 'out'}", "--standalone", option]
    name = option.partition("=")[0]
    with pytest.raises(ExportError, match=rf"standalone models are written without {name}, which .* Leave it out, or"):
        CliRunner().invoke(app, command, catch_exceptions=False)
    assert not (tmp_path / "out").exists()


def test_the_command_says_how_near_each_language_is(tiny: Tiny, tmp_path: Path) -> None:
    options = [f"--{name}={path}" for name, path in (("primary", tiny.primary), ("task", tiny.task))]
    command = ["export", "onnx", *options, f"--embeddings={tiny.embeddings['de']}", "--standalone"]
    shown = CliRunner().invoke(app, [*command, f"--out={tmp_path / 'out'}"], catch_exceptions=False)
    assert shown.output.count("outputs equal PyTorch's within") == 2
    with pytest.raises(ArtifactError, match="exists already"):
        CliRunner().invoke(app, [*command, f"--out={tmp_path / 'out'}"], catch_exceptions=False)
    more = ["--precision=int8", "--precision=fp16", f"--out={tmp_path / 'two'}"]
    with pytest.raises(ExportError, match="has one precision"):
        CliRunner().invoke(app, [*command, *more], catch_exceptions=False)

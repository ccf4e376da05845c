import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from lingraft._version import __version__
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, fingerprint, require_aligned
from lingraft.artifacts.manifest import FORMAT_VERSION, MANIFEST, Cost, Kind, read_manifest
from lingraft.cli import app
from lingraft.errors import AlignmentError, ArtifactError


def lingraft(*arguments: object) -> str:
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False).stdout


def tensors() -> dict[str, Tensor]:
    return {"table_VD": torch.arange(12.0).view(4, 3), "bias_V": torch.zeros(4)}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    with artifact.create(tmp_path / "made", Kind.EMBEDDINGS) as draft:
        draft.tensors("vocabulary", tensors())
        draft.tensors("half", {"x": torch.ones(2, dtype=torch.bfloat16)})
        (draft.folder / "inner").mkdir()
        (draft.folder / "inner/pieces.txt").write_text("a b c")
        draft.facts = {"language": "de", "aligned_with": "f" * 64, "cost": Cost(steps=3, flops=1e9)}
    return tmp_path / "made"


def refusal(folder: Path, kind: Kind = Kind.EMBEDDINGS) -> str:
    with pytest.raises(ArtifactError) as caught:
        Artifact.load(folder, kind)
    return str(caught.value)


def edit_manifest(folder: Path, **changes: Any) -> None:
    path = folder / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_what_was_written_comes_back(made: Path) -> None:
    found = Artifact.load(made, Kind.EMBEDDINGS)
    assert all(torch.equal(tensor, tensors()[name]) for name, tensor in found.tensors("vocabulary").items())
    assert found.tensors("half")["x"].dtype == torch.bfloat16
    manifest = found.manifest
    assert (manifest.language, manifest.cost.steps, manifest.cost.flops) == ("de", 3, 1e9)
    assert manifest.shapes["vocabulary"] == {"table_VD": [4, 3], "bias_V": [4]}
    assert manifest.dtypes == {"vocabulary": "torch.float32", "half": "torch.bfloat16"}
    assert (manifest.format_version, manifest.library_version) == (FORMAT_VERSION, __version__)
    assert sorted(manifest.files) == ["half.safetensors", "inner/pieces.txt", "vocabulary.safetensors"]


def test_a_fingerprint_is_that_of_the_tensors_and_of_nothing_else(made: Path) -> None:
    marks = Artifact.load(made, Kind.EMBEDDINGS).manifest.fingerprints
    backwards = dict(reversed(tensors().items()))
    assert marks["vocabulary"] == fingerprint(tensors()) == fingerprint(backwards)


@pytest.mark.parametrize(
    "changed",
    [
        {"table_VD": torch.arange(12.0).view(4, 3), "bias": torch.zeros(4)},
        {"table_VD": torch.arange(12.0).view(3, 4), "bias_V": torch.zeros(4)},
        {"table_VD": torch.arange(12.0).view(4, 3), "bias_V": torch.zeros(4, dtype=torch.float64)},
        {"table_VD": torch.arange(12.0).view(4, 3), "bias_V": torch.tensor([0.0, 0.0, 0.0, -0.0])},
        {"table_VD": torch.arange(12.0).view(4, 3)},
    ],
    ids=["name", "shape", "dtype", "one bit", "one tensor less"],
)
def test_any_change_to_tensors_changes_their_fingerprint(changed: dict[str, Tensor]) -> None:
    assert fingerprint(changed) != fingerprint(tensors())


def test_a_fingerprint_leaves_out_how_an_artifact_was_made(tmp_path: Path) -> None:
    marks = set()
    for number in range(2):
        with artifact.create(tmp_path / str(number), Kind.TASK) as draft:
            draft.tensors("body", tensors())
            draft.log("history.jsonl", f"took {number} s")
            cost, record = Cost(steps=3, elapsed_s=number), {"device": f"cuda:{number}"}
            draft.facts = {"cost": cost, "record": record, "recipe": {"keep_every_s": number}}
        marks.add(Artifact.load(tmp_path / str(number), Kind.TASK).fingerprint)
    assert len(marks) == 1
    (tmp_path / "1" / "history.jsonl").write_text("edited")
    with pytest.raises(ArtifactError, match=r"history\.jsonl was truncated or edited"):
        Artifact.load(tmp_path / "1", Kind.TASK)


@pytest.mark.parametrize("name", ["/etc/passwd", "inner/../../outside", "inner//pieces.txt", MANIFEST])
def test_a_manifest_names_no_file_outside_its_artifact(made: Path, name: str) -> None:
    edit_manifest(made, files={name: "0" * 64})
    assert "is no path of a file within the artifact" in refusal(made)


def test_verify_prints_a_summary_and_the_whole_only_where_asked(made: Path) -> None:
    told = lingraft("verify", made)
    assert told.splitlines()[:3] == [
        f"{made} is whole",
        "  kind           embeddings of 'de'",
        f"  fingerprint    {read_manifest(made).fingerprint}",
    ]
    assert len(told.splitlines()) < 10
    whole = json.loads(lingraft("verify", made, "--json"))
    assert whole["manifest"] == json.loads((made / MANIFEST).read_text())
    mark = read_manifest(made).fingerprint
    assert whole["fingerprint"] == mark
    assert "of the fingerprint expected" in lingraft("verify", made, "--fingerprint", mark)
    with pytest.raises(ArtifactError, match=f"'{mark[:12]}' is no whole fingerprint, which has 64 digits"):
        lingraft("verify", made, "--fingerprint", mark[:12])
    edit_manifest(made, details={"labels": ["b", "a"]})
    with pytest.raises(ArtifactError, match=f"not {mark}: its manifest was edited"):
        lingraft("verify", made, "--fingerprint", mark)


def test_a_folder_without_its_manifest_does_not_exist(made: Path, tmp_path: Path) -> None:
    (made / MANIFEST).unlink()
    for folder in (made, tmp_path / "absent"):
        assert refusal(folder) == (
            f"{folder} is not an artifact: it has no {MANIFEST}. Run the stage that makes it first."
        )


def test_another_kind_is_refused_with_both_kinds(made: Path) -> None:
    assert f"{made} is an artifact of kind embeddings, but one of kind primary is needed here" in refusal(
        made, Kind.PRIMARY
    )


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 1, None, "1"])
def test_another_format_is_refused_with_both_versions(made: Path, version: object) -> None:
    edit_manifest(made, format_version=version)
    assert f"{made / MANIFEST} has format {version}; this lingraft reads format {FORMAT_VERSION}" in refusal(made)


def test_a_part_that_is_not_there_is_refused_with_those_that_are(made: Path) -> None:
    with pytest.raises(ArtifactError, match=r"no part 'body', only \['half', 'vocabulary'\]"):
        Artifact.load(made, Kind.EMBEDDINGS).tensors("body")


def test_what_is_not_aligned_is_refused_with_both_fingerprints() -> None:
    require_aligned("embeddings of 'de'", "a" * 64, "a" * 64)
    for other in ("b" * 64, None):
        with pytest.raises(AlignmentError) as caught:
            require_aligned("embeddings of 'de'", other, "a" * 64)
        assert str(other) in str(caught.value)
        assert "a" * 64 in str(caught.value)
        assert "embeddings of 'de'" in str(caught.value)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "edited": lambda file: file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1])),
    "lengthened": lambda file: file.write_bytes(file.read_bytes() + b"\0"),
    "missing": lambda file: file.unlink(),
    "surplus": lambda file: (file.parent / "notes.txt").write_text("mine"),
}


@pytest.mark.parametrize("damage", [*DAMAGE])
def test_a_damaged_file_is_named(made: Path, damage: str) -> None:
    name = "inner/pieces.txt"
    DAMAGE[damage](made / name)
    told = {
        "missing": f"{made} lacks ['{name}']",
        "surplus": f"{made} holds ['inner/notes.txt'], which its manifest does not name",
    }
    assert told.get(damage, f"{made / name} was truncated or edited") in refusal(made)


@pytest.mark.parametrize(
    "content",
    [b"{", b"\xff\xfe", b"[]", b"[" * 10**5, b'{"format_version": ' + b"1" * 5000 + b"}"],
    ids=["open", "no text", "list", "deep", "long"],
)
def test_a_manifest_that_is_not_a_json_object_is_named(made: Path, content: bytes) -> None:
    (made / MANIFEST).write_bytes(content)
    assert f"{made / MANIFEST} is damaged" in refusal(made)

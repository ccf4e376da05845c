"""Work that goes on where it stopped, and refuses what was made from something else."""

from pathlib import Path

import pytest

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.artifacts.cache import (
    ProvenanceMismatchError,
    artifact_fingerprint,
    get_or_make,
    make_if_absent,
    provenance_file,
)
from lingraft.errors import ArtifactError


class Maker:
    """Writes a small artifact, and counts how often."""

    def __init__(self, out: Path, content: str = "{}\n") -> None:
        self.out, self.content, self.times = out, content, 0

    def __call__(self) -> None:
        self.times += 1
        with artifact.create(self.out, Kind.TEXT) as draft:
            (draft.folder / "train.jsonl").write_text(self.content)

    def once(self, **made_from: object) -> Artifact:
        return get_or_make(self.out, Kind.TEXT, made_from, self)


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "text" / "de")


def test_what_is_there_is_not_made_again(maker: Maker) -> None:
    made = maker.once(steps=10, heads=(1, 2), split={"dev_share": 0.1})
    again = maker.once(steps=10, heads=[1, 2], split={"dev_share": 0.1})
    assert maker.times == 1
    assert made.manifest == again.manifest


def test_other_settings_are_refused_with_what_differs_and_the_way_out(maker: Maker) -> None:
    maker.once(adaptation={"steps": 10, "depth": 2}, source="ab")
    with pytest.raises(ProvenanceMismatchError) as caught:
        maker.once(adaptation={"steps": 20, "depth": 2}, seed=3)
    message = str(caught.value)
    assert "adaptation.steps was 10, is 20" in message
    assert "seed was nothing, is 3" in message
    assert "source was ab, is nothing" in message
    assert "depth" not in message
    assert f"Remove {maker.out}" in message
    assert maker.times == 1


def test_what_was_made_from_what_is_refused_is_to_be_removed_with_it(tmp_path: Path) -> None:
    text, blocks, other = (Maker(tmp_path / name, content=name) for name in ("text", "blocks", "other"))
    made = blocks.once(inputs={"text": text.once(steps=10).fingerprint})
    checkpoint = tmp_path / "hf" / "topic"
    make_if_absent(checkpoint, {"blocks": made.fingerprint}, lambda: (checkpoint / "files").mkdir(parents=True))
    other.once(steps=10)
    with pytest.raises(ProvenanceMismatchError) as caught:
        text.once(steps=20)
    whole = f"Remove {text.out} and what was made from it, which is here {blocks.out}, {checkpoint}, to have it made"
    assert whole in str(caught.value)
    with pytest.raises(ProvenanceMismatchError, match=f"Remove {other.out} and what was made from it to have it"):
        other.once(steps=20)


def test_work_that_stopped_halfway_is_done_from_the_start(maker: Maker) -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get_or_make(maker.out, Kind.TEXT, {"steps": 10}, stopped)
    assert maker.once(steps=20).manifest.kind is Kind.TEXT
    assert maker.times == 1


def test_an_artifact_of_unknown_origin_is_refused(maker: Maker) -> None:
    maker()
    with pytest.raises(ProvenanceMismatchError, match=r"de\.made-from\.json.* cannot be read.*Remove"):
        maker.once(steps=10)


def test_a_damaged_artifact_is_refused(maker: Maker) -> None:
    maker.once(steps=10)
    (maker.out / "train.jsonl").write_text("{")
    with pytest.raises(ArtifactError, match="truncated or edited"):
        maker.once(steps=10)


def test_what_something_was_made_from_stands_beside_it(maker: Maker) -> None:
    made = maker.once(steps=10)
    assert provenance_file(maker.out).read_text() == '{\n  "steps": 10\n}\n'
    assert artifact_fingerprint(maker.out) == made.fingerprint


def test_a_folder_without_an_artifact_has_no_mark(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"has no manifest\.json"):
        artifact_fingerprint(tmp_path)


def test_a_folder_that_is_no_artifact_is_filled_once(tmp_path: Path) -> None:
    out, filled = tmp_path / "out", []

    def fill() -> None:
        out.mkdir()
        (out / "config.json").write_text("{}")
        filled.append(out)

    for _ in range(2):
        make_if_absent(out, {"embeddings": "ab"}, fill)
    assert filled == [out]
    with pytest.raises(ProvenanceMismatchError, match="embeddings was ab, is cd"):
        make_if_absent(out, {"embeddings": "cd"}, fill)

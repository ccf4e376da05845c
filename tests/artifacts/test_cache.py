"""Outputs that are made once, and refused if they were made from something else."""

import threading
from pathlib import Path

import pytest

from lingraft._version import __version__
from lingraft.artifacts import artifact, cache
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.cache import ProvenanceMismatchError, cached, is_made
from lingraft.artifacts.manifest import Kind


class Maker:
    def __init__(self, out: Path, content: str = "{}\n") -> None:
        self.out, self.content, self.times = out, content, 0

    def __call__(self) -> Artifact:
        self.times += 1
        with artifact.create(self.out, Kind.TEXT) as draft:
            (draft.folder / "train.jsonl").write_text(self.content)
        return Artifact.load(self.out, Kind.TEXT)

    def once(self, **provenance: object) -> Artifact:
        with cached(self.out, Kind.TEXT, provenance) as found:
            return found or self()


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "text" / "de")


def test_what_is_there_is_not_made_again(maker: Maker) -> None:
    made = maker.once(steps=10, heads=(1, 2), split={"dev_share": 0.1})
    again = maker.once(steps=10, heads=[1, 2], split={"dev_share": 0.1})
    assert maker.times == 1
    assert made.manifest == again.manifest
    assert {path.name for path in maker.out.parent.iterdir()} == {"de", "de.made-from.json"}


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


def test_changed_files_are_named_behind_the_settings_without_their_hashes(maker: Maker) -> None:
    one, other = "a" * 64, "b" * 64
    maker.once(
        settings={"files": {"1-1": {"my de.txt": one}, "1-2": {"en.txt": one}}, "language": "en"},
        inputs={"primary": one},
    )
    with pytest.raises(ProvenanceMismatchError) as caught:
        maker.once(settings={"files": {"1-1": {"my de.txt": other}}, "language": "de"}, inputs={"primary": other})
    listed = "settings.language was en, is de; primary has changed; my de.txt has changed; en.txt is no longer given"
    assert f"made from something else: {listed}. Remove" in str(caught.value)


def test_what_another_version_made_is_refused(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    maker.once(steps=10)
    monkeypatch.setattr(cache, "__version__", "99")
    with pytest.raises(ProvenanceMismatchError, match=f"lingraft was {__version__}, is 99"):
        maker.once(steps=10)


def test_work_that_stopped_halfway_is_done_from_the_start(maker: Maker) -> None:
    with pytest.raises(KeyboardInterrupt), cached(maker.out, Kind.TEXT, {"steps": 10}):
        raise KeyboardInterrupt
    assert maker.once(steps=20).manifest.kind is Kind.TEXT
    assert maker.times == 1


def test_an_artifact_of_unknown_origin_is_refused(maker: Maker) -> None:
    maker()
    with pytest.raises(ProvenanceMismatchError, match=r"de\.made-from\.json.* cannot be read.*Remove"):
        maker.once(steps=10)


def test_a_damaged_artifact_is_set_aside_and_made_again(maker: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    made = maker.once(steps=10)
    (maker.out / "train.jsonl").write_text("{")
    assert maker.once(steps=10).fingerprint == made.fingerprint
    [aside] = maker.out.parent.glob("de.damaged-*")
    assert (aside / "train.jsonl").read_text() == "{"
    assert f"the damaged one is now {aside}" in capsys.readouterr().err


def test_a_result_beside_which_checkpoints_stand_is_left_to_the_stage_to_finish(maker: Maker) -> None:
    maker.once(steps=10)
    training = maker.out.with_name("de.training")
    (training / "set-aside-step-00000001").mkdir(parents=True)
    with cached(maker.out, Kind.TEXT, {"steps": 10}) as found:
        assert found
    (training / "step-00000002").mkdir()
    with cached(maker.out, Kind.TEXT, {"steps": 10}) as found:
        assert found is None


def test_whoever_wants_what_another_makes_waits_for_it(maker: Maker) -> None:
    begun, other = threading.Event(), Maker(maker.out)

    def make_slowly() -> None:
        with cached(maker.out, Kind.TEXT, {"steps": 10}):
            begun.set()
            waiting.wait(0.2)
            maker()

    waiting = threading.Event()
    slow = threading.Thread(target=make_slowly)
    slow.start()
    begun.wait()
    other.once(steps=10)
    slow.join()
    assert (maker.times, other.times) == (1, 0)


def test_a_folder_that_is_no_artifact_is_filled_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert not is_made(out, {"embeddings": "ab"})
    out.mkdir()
    (out / "config.json").write_text("{}")
    assert is_made(out, {"embeddings": "ab"})
    with pytest.raises(ProvenanceMismatchError, match="embeddings was ab, is cd"):
        is_made(out, {"embeddings": "cd"})

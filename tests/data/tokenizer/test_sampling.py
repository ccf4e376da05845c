import json
from pathlib import Path

import pytest

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.data.tokenizer.sampling import CorpusProfile, sample_lines, training_lines


def written(folder: Path, texts: list[str]) -> Artifact:
    with artifact.create(folder, Kind.TEXT) as draft:
        for split in ("train", "dev", "test"):
            rows = texts if split == "train" else ["other"]
            lines = [json.dumps({"name": str(place), "text": text}) for place, text in enumerate(rows)]
            (draft.folder / f"{split}.jsonl").write_text("\n".join(lines))
        draft.facts = {"language": "en"}
    return Artifact.load(folder, Kind.TEXT)


def numbered(count: int) -> list[str]:
    return [str(number) for number in range(count)]


@pytest.mark.parametrize("wanted", [5, 6, 1000])
def test_all_lines_are_taken_in_their_order_where_no_more_are_there(wanted: int) -> None:
    assert list(sample_lines(numbered(5), 5, wanted)) == numbered(5)


@pytest.mark.parametrize("wanted", [1, 17, 999])
def test_exactly_so_many_lines_are_chosen_the_same_ones_each_time_in_their_order(wanted: int) -> None:
    chosen = list(sample_lines(numbered(1000), 1000, wanted))
    assert len(set(chosen)) == wanted
    assert chosen == sorted(chosen, key=int) == list(sample_lines(numbered(1000), 1000, wanted))


def test_lines_are_those_of_the_training_split_that_are_not_blank(tmp_path: Path) -> None:
    text = written(tmp_path / "text", ["one\n\n  \ntwo", "three"])
    assert list(training_lines(text)) == ["one", "two", "three"]
    assert CorpusProfile.of(text) == CorpusProfile(lines=3, characters=11, large_script_share=0.0)


@pytest.mark.parametrize(
    ("lines", "characters", "wanted", "sampled"),
    [
        (500, 100_000, 1000, 500),
        (2_000_000, 400_000_000, 500_000, 500_000),
        (2_000_000, 200_000_000_000, 500_000, 2684),
        (1, 1 << 30, 500_000, 1),
        (0, 0, 500_000, 0),
    ],
)
def test_a_sample_has_no_more_lines_than_memory_holds(lines: int, characters: int, wanted: int, sampled: int) -> None:
    assert CorpusProfile(lines, characters, 0.0).sample_size(wanted) == sampled

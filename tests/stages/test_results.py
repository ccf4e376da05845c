import math
from pathlib import Path

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Cost, Kind
from lingraft.errors import ArtifactError
from lingraft.stages import results
from lingraft.stages.results import (
    LanguageResult,
    MaskedScores,
    Point,
    Result,
    SearchResult,
    SeedScores,
    SourceResult,
    TaskScores,
    Trial,
)

POINT = Point(step=20, tokens=10_240, flops=1.5e9, elapsed_s=0.25, loss=4.5, learning_rate=3e-3)
TASK = TaskScores(
    name="topic",
    metric="accuracy",
    labels=["garden", "kitchen"],
    examples=40,
    truncated=3,
    baseline=0.6,
    score=SeedScores(by_seed={1: 0.7, 2: 0.8}),
    initial=SeedScores(by_seed={1: 0.5, 2: 0.6}),
    confusion=[[30, 10], [12, 28]],
)
QUESTIONS = TaskScores(
    name="questions",
    metric="F1",
    labels=[],
    examples=30,
    truncated=0,
    baseline=0.1,
    score=SeedScores(by_seed={1: 0.4, 2: 0.5}),
    others={"exact_match": SeedScores(by_seed={1: 0.2, 2: 0.3})},
)
LANGUAGE = LanguageResult(
    language="de",
    primary="a" * 64,
    embeddings="b" * 64,
    system="MINIPOST",
    depth=1,
    fresh_layers=2,
    layers=3,
    vocabulary=120,
    overlap=17,
    masked=MaskedScores(mini=0.2, primary=0.3, mini_initial=0.1, primary_initial=0.15),
    tasks=(TASK,),
    cost=Cost(steps=20, tokens=10_240, flops=1.5e9, elapsed_s=0.25),
    whole_flops=4e9,
    history=[POINT],
    precision="fp32",
)
SOURCE = SourceResult(
    language="en",
    primary="a" * 64,
    layers=3,
    vocabulary=120,
    masked_by_depth={1: 0.2, 3: 0.3},
    tasks=(TASK, QUESTIONS),
    pretraining=Cost(steps=60),
    finetuning={"topic": Cost(steps=30), "questions": Cost(steps=40)},
    pretraining_history=[POINT],
    finetuning_history={"topic": {1: [POINT], 2: []}, "questions": {1: [POINT], 2: [POINT]}},
    precision="bf16",
)
SEARCH = SearchResult(
    language="de",
    primary="a" * 64,
    chosen=2,
    trials=[
        Trial(
            depth=2,
            steps=8,
            flops=1e9,
            elapsed_s=1.0,
            score=0.2,
            pruned=False,
            scores_by_flops=[(5e8, 0.1), (1e9, 0.2)],
        )
    ],
)
KINDS = {"language": Kind.EVALUATION, "source": Kind.EVALUATION, "search": Kind.SEARCH}
LOADERS = {"language": results.load_language, "source": results.load_source, "search": results.load_search}
RESULTS: dict[str, Result] = {"language": LANGUAGE, "source": SOURCE, "search": SEARCH}


def saved(of: str, out: Path) -> Path:
    results.save(RESULTS[of], out, {"language": "de", "aligned_with": "a" * 64})
    return out


@pytest.mark.parametrize("of", RESULTS)
def test_a_result_comes_back_as_it_was(of: str, tmp_path: Path) -> None:
    folder = saved(of, tmp_path / "out")
    assert LOADERS[of](folder) == RESULTS[of]
    manifest = Artifact.load(folder, KINDS[of]).manifest
    assert (manifest.language, manifest.aligned_with) == ("de", "a" * 64)


@pytest.mark.parametrize(("saved_as", "loaded_as"), [("language", "source"), ("source", "language")])
def test_one_evaluation_is_not_taken_for_the_other(saved_as: str, loaded_as: str, tmp_path: Path) -> None:
    folder = saved(saved_as, tmp_path / "out")
    with pytest.raises(ArtifactError, match=f"evaluation of a {saved_as}, but that of a {loaded_as} is needed"):
        LOADERS[loaded_as](folder)


def test_a_search_is_no_evaluation(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="of kind search, but one of kind evaluation"):
        results.load_language(saved("search", tmp_path / "out"))


def test_seeds_are_averaged_and_a_single_one_says_nothing_of_spread() -> None:
    scores, single = SeedScores(by_seed={1: 0.2, 5: 0.4, 9: 0.6}), SeedScores(by_seed={1: 0.25})
    assert (scores.mean, scores.deviation) == (pytest.approx(0.4), pytest.approx(0.2))
    assert single.mean == 0.25
    assert math.isnan(single.deviation)
